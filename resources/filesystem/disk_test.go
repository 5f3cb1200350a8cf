package filesystem

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// diskVariable makes the test binary the server of a disk: a file system in user space (FUSE, described in
// include/uapi/linux/fuse.h) of one file, on which a loop device is set up. It is a process of its own: a kernel that
// waits for a server in the same process could never end it.
const diskVariable = "FILESYSTEM_TEST_DISK"

// badDisk is a disk that does what it is told.
type badDisk struct {
	device string
	in     io.Writer
	out    *bufio.Reader
}

// newBadDisk makes a disk with a fresh file system, which works at first.
func newBadDisk(t *testing.T, mkfs ...string) *badDisk {
	t.Helper()
	backing, file := image(t, mkfs...), filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", backing, file)
	cmd.Env = append(os.Environ(), diskVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &badDisk{in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait(); _ = unix.Unmount(file, unix.MNT_DETACH) })
	d.now(t, "work")
	d.device = loop(t, file)
	return d
}

// now says that the disk is to work, hang, hang writes or fail, and waits until it does.
func (d *badDisk) now(t *testing.T, mode string) {
	t.Helper()
	fmt.Fprintln(d.in, mode)
	if line, err := d.out.ReadString('\n'); err != nil || line != mode+"\n" {
		t.Fatalf("the disk does not %s: %q %v", mode, line, err)
	}
}

// during lets the disk hang or fail until the test ends.
func (d *badDisk) during(t *testing.T, mode string) {
	t.Helper()
	d.now(t, mode)
	t.Cleanup(func() { d.now(t, "work") })
}

// The requests that one file needs, by their numbers.
const (
	fuseGetattr, fuseSetattr, fuseOpen, fuseRead, fuseWrite = 3, 4, 14, 15, 16
	fuseRelease, fuseFsync, fuseInit                        = 18, 20, 26
	fuseMaxWrite                                            = 128 << 10
)

type diskServer struct {
	fuse, backing int
	mu            sync.Mutex
	changed       sync.Cond
	mode          string
}

func serveDisk(backing, file string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "disk:", err)
			os.Exit(1)
		}
	}
	time.AfterFunc(5*time.Minute, func() { os.Exit(1) }) // whatever happens, no disk hangs for ever
	var s diskServer
	var err error
	s.changed.L = &s.mu
	s.backing, err = unix.Open(backing, unix.O_RDWR|unix.O_CLOEXEC, 0)
	check(err)
	s.fuse, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	check(err)
	check(unix.Mount("disk", file, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", s.fuse)))
	go s.serve()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		s.mu.Lock()
		s.mode = commands.Text()
		s.changed.Broadcast()
		s.mu.Unlock()
		fmt.Println(commands.Text())
	}
	os.Exit(0)
}

func (s *diskServer) serve() {
	b := make([]byte, fuseMaxWrite+4096)
	for {
		n, err := unix.Read(s.fuse, b)
		if err != nil {
			return
		}
		answer, errno := s.answer(binary.NativeEndian.Uint32(b[4:]), b[40:n])
		out := binary.NativeEndian.AppendUint32(nil, uint32(16+len(answer)))
		out = binary.NativeEndian.AppendUint32(out, uint32(-int32(errno)))
		out = append(append(out, b[8:16]...), answer...)
		_, _ = unix.Write(s.fuse, out)
	}
}

func (s *diskServer) answer(op uint32, in []byte) (answer []byte, errno unix.Errno) {
	u32 := func(v ...uint32) {
		for _, v := range v {
			answer = binary.NativeEndian.AppendUint32(answer, v)
		}
	}
	u64 := func(v uint64) { answer = binary.NativeEndian.AppendUint64(answer, v) }
	switch op {
	case fuseInit:
		u32(7, 31, 128<<10, 1<<5, 12|9<<16, fuseMaxWrite, 1) // FUSE_BIG_WRITES
		return append(answer, make([]byte, 64-len(answer))...), 0
	case fuseGetattr, fuseSetattr:
		var st unix.Stat_t
		_ = unix.Fstat(s.backing, &st)
		u64(1)
		u64(0)
		u64(1) // inode
		u64(uint64(st.Size))
		u64(uint64(st.Blocks))
		answer = append(answer, make([]byte, 36)...) // times
		u32(unix.S_IFREG|0o600, 1, 0, 0, 0, 4096, 0)
		return answer, 0
	case fuseOpen:
		u64(1)
		u32(1, 0) // FOPEN_DIRECT_IO: the kernel keeps nothing
		return answer, 0
	case fuseRead, fuseWrite, fuseFsync:
		s.mu.Lock()
		for s.mode == "hang" || s.mode == "hang writes" && op != fuseRead {
			s.changed.Wait()
		}
		failing := s.mode == "fail"
		s.mu.Unlock()
		if failing {
			return nil, unix.EIO
		}
		return s.transfer(op, in)
	case fuseRelease, 25: // FUSE_FLUSH
		return nil, 0
	default:
		return nil, unix.ENOSYS
	}
}

func (s *diskServer) transfer(op uint32, in []byte) ([]byte, unix.Errno) {
	if op == fuseFsync {
		return nil, 0
	}
	offset, size := int64(binary.NativeEndian.Uint64(in[8:])), binary.NativeEndian.Uint32(in[16:])
	if op == fuseRead {
		b := make([]byte, size)
		n, err := unix.Pread(s.backing, b, offset)
		if err != nil {
			return nil, unix.EIO
		}
		return b[:n], 0
	}
	n, err := unix.Pwrite(s.backing, in[40:40+size], offset)
	if err != nil {
		return nil, unix.EIO
	}
	return binary.NativeEndian.AppendUint64(nil, uint64(n)), 0
}

// image makes a file with a fresh file system, as big as its type needs it.
func image(t *testing.T, mkfs ...string) string {
	t.Helper()
	size := map[string]int64{"mkfs.ext4": 16 << 20, "mkfs.btrfs": 128 << 20, "mkfs.xfs": 300 << 20}[mkfs[0]]
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	run(t, append(mkfs, path)...)
	return path
}

func loop(t *testing.T, image string) string {
	t.Helper()
	device := run(t, "losetup", "--find", "--show", image)
	t.Cleanup(func() { run(t, "losetup", "--detach", device) })
	return device
}

// mkfsOf are the file systems that the tests know.
var mkfsOf = map[string][]string{
	"ext4":  {"mkfs.ext4", "-q", "-F"},
	"xfs":   {"mkfs.xfs", "-q", "-f"},
	"btrfs": {"mkfs.btrfs", "-q", "-f"},
}

// eventually polls for a condition, for as long as a busy machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", strings.TrimSpace(what))
		}
	}
}
