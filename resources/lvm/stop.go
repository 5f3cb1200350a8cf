package lvm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/hamgr/hamgr/resources/internal/process"
)

const (
	// releaseTime is how long a volume may stay open after the resources above it were stopped: udev looks at what was unmounted.
	releaseTime  = 2 * time.Second
	releasePause = 100 * time.Millisecond
	// lastLook is how long after its context has ended a stop looks for who uses what is left.
	lastLook = 10 * time.Millisecond
)

// Stop implements resources.Resource. It is done when no mapped device of the group is left, whatever LVM says.
func (v *volumeGroup) Stop(ctx context.Context) error {
	if err := v.stop(ctx); err != nil {
		return fmt.Errorf("deactivate volume group %s: %w", v.name(), err)
	}
	return nil
}

func (v *volumeGroup) stop(ctx context.Context) error {
	held, err := v.hold(ctx) // a start that still runs would activate it afterwards
	if err != nil {
		return err
	}
	defer held.Close()
	rec, err := v.started()
	if err != nil {
		return err
	}
	var failed error
	for end := time.Now().Add(v.release); ; {
		ds, err := v.devices(rec.UUID)
		if err != nil {
			return errors.Join(err, failed)
		}
		if len(ds) == 0 {
			return v.forget()
		}
		if failed != nil && (time.Now().After(end) || ctx.Err() != nil) {
			return errors.Join(v.left(ctx, ds), failed, ctx.Err())
		}
		if failed != nil {
			if process.Sleep(ctx, releasePause); ctx.Err() != nil {
				continue
			}
		}
		failed = v.deactivate(ctx, held, rec.UUID)
	}
}

// deactivate has LVM deactivate the group. Where LVM cannot (the disks are gone, or the group has another host's system ID by now), the
// kernel is told to drop each device; it refuses what is in use.
func (v *volumeGroup) deactivate(ctx context.Context, held *os.File, groupUUID string) error {
	_, failed := v.lvm(ctx, held, "vgchange", "", "--activate", "n", v.name())
	if errors.Is(failed, errHangs) {
		return failed
	}
	for before := math.MaxInt; ; {
		ds, err := v.devices(groupUUID)
		if err != nil || len(ds) == 0 {
			return err
		}
		if failed == nil {
			failed = errors.New("LVM called it success, and devices are left")
		}
		if len(ds) >= before {
			return failed
		}
		before = len(ds)
		for _, d := range ds { // what is below others is busy until they are gone
			if err := v.unmap(ctx, held, d); err != nil && (ctx.Err() != nil || errors.Is(err, errHangs)) {
				return errors.Join(failed, err)
			}
		}
	}
}

func (v *volumeGroup) unmap(ctx context.Context, held *os.File, d device) error {
	args := []string{"remove", "--uuid", d.uuid}
	if !hasUdev() {
		args = append(args, "--noudevrules", "--noudevsync")
	}
	_, err := v.run(ctx, held, "dmsetup", args...)
	return err
}

// left says which devices are left, and who uses them, if that can be told in time: a host may have many processes.
func (v *volumeGroup) left(ctx context.Context, ds []device) error {
	told := make(chan error, 1)
	go func() { told <- v.used(ds) }()
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(lastLook)
	defer t.Stop()
	select {
	case err := <-told:
		return err
	case <-t.C:
		return fmt.Errorf("%s is still active; there was no time to look who uses it", ds[0].name)
	}
}

func (v *volumeGroup) used(ds []device) error {
	var errs []error
	for i, d := range ds {
		if i == mostNamed {
			errs = append(errs, fmt.Errorf("%d more are still active", len(ds)-i))
			break
		}
		who, err := v.users(d)
		if err != nil {
			who = "who uses it cannot be told: " + err.Error()
		}
		errs = append(errs, fmt.Errorf("%s is still active: %s", d.name, who))
	}
	return errors.Join(errs...)
}
