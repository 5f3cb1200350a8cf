// Package lvm is the resource kind of one LVM volume group on shared disks, active on one node.
//
// LVM itself does not know who else has the disks. Three things keep a group on one node: the grant; that no host
// activates the group by itself (its autoactivation property is off, which is written on the disks and so
// holds for every host and every initramfs); and, in the mode system_id, that LVM on every other host refuses
// to touch a group whose system ID is not its own (lvmsystemid(7)). A start takes the group over by
// changing the system ID, which only a grant may do.
//
// What is active is asked from the kernel: /sys/class/block/dm-*/dm tells the group and the volume of every
// mapped device. A monitor starts no process. LVM's commands read the disks and may hang with them; they
// run as process groups that are ended with the caller's context, and what cannot be ended is known by a lock that it
// holds (see hold), also to the next daemon.
package lvm

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/hamgr/hamgr/resources"
)

const example = `[[group.resource]]
name = "disks"
kind = "lvm"
volume_group = "db"
`

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name:    "lvm",
		Doc:     "an LVM volume group on shared disks",
		Options: func() resources.Options { return &Options{Mode: systemIDMode, CheckDisks: true} },
		Example: example,
	}
}

// The values of the key mode.
const (
	systemIDMode = "system_id"
	plainMode    = "plain"
)

// Options are the keys of a volume group in hamgr.toml.
type Options struct {
	VolumeGroup string `toml:"volume_group" doc:"name of the volume group; all of its volumes are activated"`
	Mode        string `toml:"mode" doc:"system_id: LVM on other hosts refuses the group while this node has it; plain: only hamgr's grant keeps them off; default system_id"`
	CheckDisks  bool   `toml:"check_disks" doc:"whether a monitor reads a block of every disk of the group; default true"`
}

// groupName is what lvm(8) allows.
var groupName = regexp.MustCompile(`^[a-zA-Z0-9+_.][a-zA-Z0-9+_.-]{0,126}$`)

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	switch {
	case o.VolumeGroup == "":
		errs = append(errs, &resources.KeyError{Key: "volume_group", Msg: "no volume group", Cure: "write its name, as vgs shows it"})
	case !groupName.MatchString(o.VolumeGroup) || o.VolumeGroup == "." || o.VolumeGroup == "..":
		errs = append(errs, &resources.KeyError{Key: "volume_group", Msg: fmt.Sprintf("%q is no name of a volume group", o.VolumeGroup), Cure: "write its name, as vgs shows it"})
	}
	if o.Mode != systemIDMode && o.Mode != plainMode {
		errs = append(errs, &resources.KeyError{Key: "mode", Msg: fmt.Sprintf("%q is no mode", o.Mode), Cure: `write "system_id" or "plain"`})
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options.
func (o *Options) Exclusive() (key, what string) { return "volume_group", o.VolumeGroup }

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	return &volumeGroup{opts: *o, env: env, sys: "/sys/class/block", dev: "/dev", path: programPath, release: releaseTime}, nil
}

var (
	_ resources.Resource = (*volumeGroup)(nil)
	_ resources.Checker  = (*volumeGroup)(nil)
)

type volumeGroup struct {
	opts Options
	env  resources.Env

	sys, dev string // the kernel's block devices, and their nodes
	path     string // where LVM's programs are looked for
	release  time.Duration

	rec     *record    // of the last start; nil: not read yet
	seen    []device   // the group's devices, as of the last look at all devices
	reading chan error // of the last look at the disks, while it has not come back
}

func (v *volumeGroup) name() string { return v.opts.VolumeGroup }
