package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// Check implements resources.Checker.
func (v *volumeGroup) Check(ctx context.Context) error {
	held, err := v.hold(ctx)
	if err == nil {
		defer held.Close()
		_, _, err = v.fit(ctx, held)
	}
	if err != nil {
		return fmt.Errorf("check volume group %s: %w", v.name(), err)
	}
	return nil
}

// fit reads the group and the host, and refuses what must not be started as it is.
func (v *volumeGroup) fit(ctx context.Context, held *os.File) (metadata, host, error) {
	h, err := v.host(ctx, held)
	if err != nil {
		return metadata{}, host{}, err
	}
	m, err := v.read(ctx, held)
	if err != nil {
		return metadata{}, host{}, err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return metadata{}, host{}, fmt.Errorf("kernel command line: %w", err)
	}
	if err := v.judge(m, h, string(line)); err != nil {
		return metadata{}, host{}, err
	}
	return m, h, nil
}

// judge tells what is wrong, and the cure: first what an operator has to mend, then what this node lacks.
func (v *volumeGroup) judge(m metadata, h host, cmdline string) error {
	var errs []error
	wrong := func(cure, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s; %s", resources.ErrSetup, fmt.Sprintf(format, args...), cure))
	}
	vg := v.name()
	owner := "run"
	if m.systemID != "" && m.systemID != h.systemID {
		owner = "run where LVM's system ID is " + m.systemID
	}
	if m.autoactivated {
		wrong(owner+": vgchange --setautoactivation n "+vg, "a host activates it by itself at boot, whoever has it then")
	}
	for _, word := range activatedByInitramfs(cmdline, vg) {
		wrong("take it away and make the initramfs anew", "the initramfs activates it at boot (%s on the kernel's command line)", word)
	}
	switch {
	case m.lockType != "" && m.lockType != "none":
		wrong(owner+": vgchange --lock-type none --lock-opt force "+vg, "it is under another lock manager (lvmlockd, %s)", m.lockType)
	case m.clustered:
		wrong(owner+": vgchange --lock-type none --lock-opt force "+vg, "it is under another lock manager (clvmd)")
	}
	if m.exported {
		wrong("run: vgimport "+vg, "it is exported")
	}
	if h.filtered && !mayBeAllowed(h.allowed, vg) {
		wrong(fmt.Sprintf("add %q to it", vg), "activation/volume_list in lvm.conf keeps this host from activating it")
	}
	if v.opts.Mode == systemIDMode {
		errs = append(errs, v.judgeSystemID(m, h))
	} else if m.systemID != "" {
		wrong(`write mode = "system_id", or `+owner+`: vgchange --yes --systemid "" `+vg, "it has the system ID %s, which keeps it from moving in mode plain", m.systemID)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if m.missing != nil {
		return fmt.Errorf("%w: %d of its disks are missing (%s); see: pvs -o +pv_missing,pv_uuid", resources.ErrNode, len(m.missing), strings.Join(m.missing, ", "))
	}
	return nil
}

func (v *volumeGroup) judgeSystemID(m metadata, h host) error {
	vg := v.name()
	switch {
	case h.systemID == "":
		return fmt.Errorf(`%w: this host has no LVM system ID; write system_id_source = "uname" in the section global of /etc/lvm/lvm.conf`, resources.ErrSetup)
	case m.systemID == "":
		return fmt.Errorf("%w: it has no system ID, so that LVM on every host may use it; run: vgchange --yes --systemid %s %s", resources.ErrSetup, h.systemID, vg)
	case !systemID.MatchString(m.systemID):
		return fmt.Errorf("%w: its system ID %q is none that LVM allows; run: vgchange --yes --systemid %s %s", resources.ErrSetup, m.systemID, h.systemID, vg)
	case m.systemID != h.systemID && slices.Contains(h.extra, m.systemID):
		return fmt.Errorf("%w: this host uses the groups of %s as its own; take that out of local/extra_system_ids in /etc/lvm/lvmlocal.conf", resources.ErrSetup, m.systemID)
	}
	return nil
}

// mayBeAllowed reports whether activation/volume_list may let the group be activated: it names the group or volumes of it, or has tags, which
// are LVM's to compare.
func mayBeAllowed(list []string, vg string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return s == vg || strings.HasPrefix(s, vg+"/") || strings.HasPrefix(s, "@")
	})
}

// activatedByInitramfs finds what tells dracut's initramfs to activate the group, whatever its properties are
// (dracut.cmdline(7)).
func activatedByInitramfs(cmdline, vg string) []string {
	var found []string
	for word := range strings.FieldsSeq(cmdline) {
		if word == "rd.lvm.vg="+vg || strings.HasPrefix(word, "rd.lvm.lv="+vg+"/") {
			found = append(found, word)
		}
	}
	return found
}
