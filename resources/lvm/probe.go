package lvm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Probe implements resources.Resource. It reads sysfs and, from each disk, a block. Only a volume that is not active any more makes
// it ask LVM whether the volume was removed.
func (v *volumeGroup) Probe(ctx context.Context) (resources.State, string, error) {
	if err := ctx.Err(); err != nil {
		return resources.Unknown, "", err
	}
	rec, err := v.started()
	if err != nil {
		return resources.Unknown, "", err
	}
	w, err := v.look(rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	switch {
	case len(w.devices) == 0 && w.busy: // which may activate it
		return resources.Unknown, "an earlier LVM command still runs", nil
	case len(w.devices) == 0:
		return resources.Inactive, "", nil
	case len(w.absent) > 0 && !v.removed(ctx, &rec, w.absent):
		return resources.Failed, "not active: " + list(w.absent), ctx.Err()
	case w.gone != nil:
		return resources.Failed, w.gone.Error(), nil
	}
	if v.opts.CheckDisks {
		err, late := v.readDisks(ctx, w.disks)
		if late != nil {
			return resources.Unknown, "", late
		}
		if err != nil {
			return resources.Failed, err.Error(), nil
		}
	}
	detail := "on " + strings.Join(w.disks, ", ")
	if rec.UUID == "" {
		detail = "activated by something else than hamgr, " + detail
	}
	return resources.Active, detail, nil
}

// view is what the kernel says of the group.
type view struct {
	devices []device
	absent  []volume // those that the last start has activated and that are not active
	disks   []string // what the devices are on
	gone    error    // a disk that is not there any more
	busy    bool     // an LVM command ran when the look at all devices began
}

// look gives the view. All devices of the host are looked at only if those known from the last time are not as they should be: volumes may have
// come back as other devices, or have moved to other disks.
func (v *volumeGroup) look(rec record) (view, error) {
	if len(v.seen) > 0 && v.still(v.seen) {
		w := view{devices: v.seen}
		if v.judgeDevices(&w, rec); len(w.absent) == 0 && w.gone == nil {
			return w, nil
		}
	}
	var w view
	var err error
	if w.busy, err = v.busy(); err != nil {
		return w, err
	}
	if w.devices, err = v.devices(rec.UUID); err != nil {
		return w, err
	}
	v.seen = w.devices
	v.judgeDevices(&w, rec)
	return w, nil
}

func (v *volumeGroup) judgeDevices(w *view, rec record) {
	for _, x := range rec.Volumes {
		if !slices.ContainsFunc(w.devices, func(d device) bool { return d.of(rec.UUID, x) }) {
			w.absent = append(w.absent, x)
		}
	}
	w.disks, w.gone = v.disks(w.devices)
}

// removed reports whether the volumes are not in the group any more: an operator has removed them, or a snapshot was merged. They
// are then not expected any more.
func (v *volumeGroup) removed(ctx context.Context, rec *record, gone []volume) bool {
	held, err := v.hold(ctx)
	if err != nil {
		return false
	}
	defer held.Close()
	m, err := v.read(ctx, held)
	if err != nil || m.uuid != rec.UUID || slices.ContainsFunc(gone, func(w volume) bool {
		return slices.ContainsFunc(m.volumes, func(x volume) bool { return x.UUID == w.UUID })
	}) {
		return false
	}
	left := record{UUID: rec.UUID}
	for _, w := range rec.Volumes {
		if !slices.Contains(gone, w) {
			left.Volumes = append(left.Volumes, w)
		}
	}
	if err := v.note(left); err != nil {
		v.env.Log.Warn("volumes were removed", "group", v.env.Group, "resource", v.env.Resource, "volumes", list(gone), "err", err)
		return false
	}
	v.env.Log.Info("volumes were removed", "group", v.env.Group, "resource", v.env.Resource, "volumes", list(gone))
	*rec = left
	return true
}

func list(vs []volume) string {
	const most = 5
	var names []string
	for _, w := range vs[:min(len(vs), most)] {
		names = append(names, w.Name)
	}
	if len(vs) > most {
		names = append(names, fmt.Sprintf("%d more", len(vs)-most))
	}
	return strings.Join(names, ", ")
}

// readDisks reads a block of every disk. A disk may hang: then the caller is let go with the error late, and the next one waits for the
// same reading.
func (v *volumeGroup) readDisks(ctx context.Context, disks []string) (err, late error) {
	if v.reading == nil {
		done, dev := make(chan error, 1), v.dev
		go func() {
			var errs []error
			for _, disk := range disks {
				errs = append(errs, readBlock(filepath.Join(dev, disk)))
			}
			done <- errors.Join(errs...)
		}()
		v.reading = done
	}
	select {
	case err := <-v.reading:
		v.reading = nil
		return err, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("a disk of %s does not answer: %w", strings.Join(disks, ", "), ctx.Err())
	}
}

// blockSize is a block of every disk that there is, and the alignment that reading past the page cache asks for.
const blockSize = 4096

func readBlock(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("disk %s: %w", path, err)
	}
	defer unix.Close(fd)
	space := make([]byte, 2*blockSize)
	start := -int(uintptr(unsafe.Pointer(&space[0]))) & (blockSize - 1)
	n, err := unix.Pread(fd, space[start:start+blockSize], 0)
	if err == nil && n < blockSize {
		err = errors.New("it ends within its first block")
	}
	if err != nil {
		return fmt.Errorf("read disk %s: %w", path, err)
	}
	return nil
}
