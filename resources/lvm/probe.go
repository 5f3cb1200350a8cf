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
	ds, err := v.look(rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(ds) == 0 {
		return v.inactive()
	}
	if gone := absent(rec, ds); len(gone) > 0 && !v.removed(ctx, &rec, gone) {
		return resources.Failed, "not active: " + list(gone), ctx.Err()
	}
	disks, err := v.disks(ds)
	if err != nil {
		v.seen = nil // the volumes may have moved to other disks: look anew, once
		if ds, err = v.look(rec); err == nil {
			disks, err = v.disks(ds)
		}
	}
	if err != nil {
		return resources.Failed, err.Error(), nil
	}
	if v.opts.CheckDisks {
		err, late := v.readDisks(ctx, disks)
		if late != nil {
			return resources.Unknown, "", late
		}
		if err != nil {
			return resources.Failed, err.Error(), nil
		}
	}
	detail := "on " + strings.Join(disks, ", ")
	if rec.UUID == "" {
		detail = "activated by something else than hamgr, " + detail
	}
	return resources.Active, detail, nil
}

// look gives the group's devices. All devices of the host are looked at only if those known from the last time are not there any more.
func (v *volumeGroup) look(rec record) ([]device, error) {
	if len(v.seen) > 0 && v.still(v.seen) {
		return v.seen, nil
	}
	ds, err := v.devices(rec.UUID)
	v.seen = ds
	return ds, err
}

// inactive is the state when no device is there: a command that still runs may activate one.
func (v *volumeGroup) inactive() (resources.State, string, error) {
	busy, err := v.busy()
	if err != nil {
		return resources.Unknown, "", err
	}
	if busy {
		return resources.Unknown, "an earlier LVM command still runs", nil
	}
	// What ended between the two looks may have left something.
	ds, err := v.devices("")
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(ds) > 0 {
		return resources.Unknown, "an LVM command has just activated it", nil
	}
	return resources.Inactive, "", nil
}

// absent are the volumes of which no device is there.
func absent(rec record, ds []device) []volume {
	var gone []volume
	for _, w := range rec.Volumes {
		if !slices.ContainsFunc(ds, func(d device) bool { return d.of(rec.UUID, w) }) {
			gone = append(gone, w)
		}
	}
	return gone
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
