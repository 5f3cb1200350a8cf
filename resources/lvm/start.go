package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hamgr/hamgr/resources"
)

// Start implements resources.Resource.
func (v *volumeGroup) Start(ctx context.Context) error {
	if err := v.start(ctx); err != nil {
		return fmt.Errorf("activate volume group %s: %w", v.name(), err)
	}
	return nil
}

func (v *volumeGroup) start(ctx context.Context) error {
	held, err := v.hold(ctx)
	if err != nil {
		return err
	}
	defer held.Close()
	m, h, err := v.fit(ctx, held)
	if err != nil {
		return err
	}
	if v.opts.Mode == systemIDMode && m.systemID != h.systemID {
		if m, err = v.takeOver(ctx, held, m, h); err != nil {
			return fmt.Errorf("take it over from %s: %w", m.systemID, err)
		}
	}
	rec := record{UUID: m.uuid, Volumes: m.volumes}
	if err := v.note(rec); err != nil {
		return err
	}
	_, failed := v.lvm(ctx, held, "vgchange", "", "--activate", "y", v.name())
	// LVM calls it success, too, when the host's configuration has kept it from activating a volume.
	v.seen = nil
	w, err := v.look(rec)
	if err != nil {
		return errors.Join(failed, err)
	}
	if len(w.absent) > 0 {
		err := fmt.Errorf("not active: %s", list(w.absent))
		if h.filtered && failed == nil {
			err = fmt.Errorf("%w: activation/volume_list in lvm.conf keeps this host from activating volumes; add %q to it: %w", resources.ErrSetup, v.name(), err)
		}
		return errors.Join(failed, err)
	}
	return failed
}

// takeOver makes the group this host's. The grant under which this runs is what says that the former owner is out.
func (v *volumeGroup) takeOver(ctx context.Context, held *os.File, m metadata, h host) (metadata, error) {
	v.env.Log.Info("volume group is taken over", "group", v.env.Group, "resource", v.env.Resource, "token", v.env.Token, "from", m.systemID, "to", h.systemID)
	_, err := v.lvm(ctx, held, "vgchange", fmt.Sprintf("local/extra_system_ids=[%q]", m.systemID), "--yes", "--systemid", h.systemID, v.name())
	if err != nil {
		return m, err
	}
	now, err := v.read(ctx, held)
	if err != nil {
		return m, err
	}
	if now.systemID != h.systemID || now.uuid != m.uuid {
		return m, fmt.Errorf("LVM called it success, and its system ID is %q", now.systemID)
	}
	return now, nil
}
