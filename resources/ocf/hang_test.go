package ocf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// A process that hangs in the kernel cannot be killed: the call ends all the same, and until it is gone nothing else
// is done, and nothing is believed; neither by this daemon, nor by the one after it.
func TestHangsInTheKernel(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = monitor ] && [ -e $d/hang ] && { stat $d/mnt/x & wait; }`)
	release := brokenDisk(t, s.file("mnt"))
	s.write("hang", "")
	r := s.resource()
	ctx := within(t, 300*time.Millisecond)
	state, _, err := r.Probe(ctx)
	end, _ := ctx.Deadline()
	if over := time.Since(end); state != resources.Unknown || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, process.ErrHangs) || over > late {
		t.Errorf("%s %v, %v too late", state, err, over)
	}
	must(t, os.Remove(s.file("hang")))
	for range 2 {
		for again := true; again; again = errors.Is(err, context.DeadlineExceeded) { // while it is being killed
			if state, _, err = r.Probe(within(t, 100*time.Millisecond)); state != resources.Unknown || err == nil {
				t.Error(state, err)
			}
		}
		wantErr(t, err, nil, "an earlier action still runs", "hangs in the kernel")
		for op, call := range map[string]func(context.Context) error{"start": r.Start, "stop": r.Stop} {
			ctx := within(t, 200*time.Millisecond)
			wantErr(t, call(ctx), context.DeadlineExceeded, op)
			if end, _ := ctx.Deadline(); time.Since(end) > late {
				t.Errorf("%s: %v too late", op, time.Since(end))
			}
		}
		r = s.resource()
	}
	if s.asked() != "monitor" {
		t.Errorf("asked %s", s.asked())
	}
	release()
	s.nothingLeft()
	wantState(t, r, resources.Inactive)
}

// The agent itself hangs: its run keeps the lock.
func TestAgentHangsInTheKernel(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = monitor ] && [ -e $d/hang ] && exec stat $d/mnt/x`)
	release := brokenDisk(t, s.file("mnt"))
	s.write("hang", "")
	r := s.resource()
	if _, _, err := r.Probe(within(t, 300*time.Millisecond)); !errors.Is(err, process.ErrHangs) {
		t.Error(err)
	}
	must(t, os.Remove(s.file("hang")))
	state, _, err := r.Probe(within(t, 100*time.Millisecond))
	if state != resources.Unknown {
		t.Error(state)
	}
	wantErr(t, err, context.DeadlineExceeded, "an earlier action hangs")
	wantErr(t, r.Stop(within(t, 100*time.Millisecond)), context.DeadlineExceeded, "an earlier action hangs")
	release()
	s.nothingLeft()
	wantState(t, r, resources.Inactive)
}

// brokenDisk mounts a file system that takes requests and never answers, as a broken disk does: whoever touches it
// hangs in the kernel, and cannot be killed. It speaks FUSE (include/uapi/linux/fuse.h) up to the first request.
func brokenDisk(t testing.TB, dir string) (release func()) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o755))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, err)
	must(t, unix.Mount("hang", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	device := os.NewFile(uintptr(fd), "/dev/fuse") // not before: it cannot be polled until it is mounted
	served := make(chan struct{})
	go func() {
		defer close(served)
		request := make([]byte, 1<<18)
		for first := true; ; first = false {
			if _, err := device.Read(request); err != nil {
				return
			}
			if !first {
				continue
			}
			answer := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
			binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
			copy(answer[8:16], request[8:16]) // unique
			binary.NativeEndian.PutUint32(answer[16:], 7)
			binary.NativeEndian.PutUint32(answer[20:], 31)
			binary.NativeEndian.PutUint32(answer[36:], 4096) // max_write
			if _, err := device.Write(answer); err != nil {
				t.Errorf("answer to FUSE_INIT: %v", err)
				return
			}
		}
	}()
	release = func() { // all requests end with an error
		device.Close()
		<-served
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	t.Cleanup(release)
	return release
}

// Files that hang, before the agent is even run, hold up nobody.
func TestFilesHangInTheKernel(t *testing.T) {
	t.Parallel()
	s := script(t, "")
	release := brokenDisk(t, s.file("mnt"))
	values, root := s.options(), s.options()
	values.ParamFiles = map[string]string{"passwd": s.file("mnt/passwd")}
	root.Root = s.file("mnt")
	for _, o := range []*Options{values, root} {
		r := s.open(o, 7)
		r.env.Dir = t.TempDir()
		for op, call := range map[string]func(context.Context) error{
			"start": r.Start, "stop": r.Stop, "check": r.Check, "probe": func(ctx context.Context) error { _, _, err := r.Probe(ctx); return err },
			"describe": func(ctx context.Context) error { _, err := describe(ctx, s.file("mnt"), o.Agent); return err },
		} {
			ctx := within(t, 100*time.Millisecond)
			wantErr(t, call(ctx), context.DeadlineExceeded, "hangs")
			if end, _ := ctx.Deadline(); time.Since(end) > late {
				t.Errorf("%s: %v too late", op, time.Since(end))
			}
		}
	}
	release()
}
