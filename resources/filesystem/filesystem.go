// Package filesystem is the resource kind of one mounted file system.
//
// What is mounted is asked from the kernel per mount: the mount ID of the mount point
// (statx(2)) names the mount that counts, so neither a stacked mount nor a table that
// changes while it is read can mislead it. A block device is told by its number, never
// by its name.
//
// A stop ends the users of exactly this mount, in whatever mount namespace, never of its
// parent, of mounts inside it, or of bind mounts of it. It never detaches lazily; and it is
// done only when the kernel says that nothing on this host holds the block device any more.
//
// System calls on a broken disk or a dead server may hang. They run beside the caller,
// who is let go when its context ends (see gate).
package filesystem

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name: "filesystem",
		Doc:  "a file system, mounted: of a disk, by NFS, or a bind mount",
		Options: func() resources.Options {
			return &Options{Fsck: fsckAuto, DiskTimeout: 10 * time.Second, KillAfter: 5 * time.Second}
		},
		Example: `[[group.resource]]
name = "data"
kind = "filesystem"
device = "/dev/disk/by-id/scsi-3600a"   # or "UUID=...", "LABEL=..."; nfs: "server:/export"
mountpoint = "/srv/db"
fstype = "xfs"
options = ["noatime"]
monitor_write = true
`,
	}
}

// Options are the keys of a filesystem in hamgr.toml.
type Options struct {
	Device           string        `toml:"device" doc:"block device, best by /dev/disk/by-id, or UUID=, LABEL=, PARTUUID=, PARTLABEL=; server:/path of NFS; the directory to bind; or the name of a file system without a device"`
	Mountpoint       string        `toml:"mountpoint" doc:"directory to mount on"`
	CreateMountpoint bool          `toml:"create_mountpoint" doc:"create the mount point, and what is missing above it, if it is not there"`
	Fstype           string        `toml:"fstype" doc:"type of the file system, as in mount -t; none for a bind mount"`
	Options          []string      `toml:"options" doc:"mount options, as in mount -o"`
	Fsck             string        `toml:"fsck" doc:"check before it is mounted: never; preen repairs what is safe to repair (fsck -p); full does so even if it is marked clean; auto is preen for ext2, ext3 and ext4, never for all others"`
	MonitorWrite     bool          `toml:"monitor_write" doc:"each monitor writes the file .hamgr-write-test in the file system, and waits until it is on the disk"`
	DiskTimeout      time.Duration `toml:"disk_timeout" doc:"a disk or server that takes longer to answer a monitor's reads and writes has failed"`
	KillAfter        time.Duration `toml:"kill_after" doc:"time from SIGTERM to SIGKILL for processes that use the mount when it is stopped"`
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(key, cure, format string, args ...any) {
		errs = append(errs, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
	}
	flags, _, err := parseOptions(o.Options)
	if err != nil {
		wrong("options", "", "%v", err)
	}
	bind := flags&unix.MS_BIND != 0
	server, path, _ := strings.Cut(o.Device, ":/")
	_, value, isTag := tag(o.Device)
	switch {
	case o.Device == "" || strings.ContainsRune(o.Device, 0):
		wrong("device", "", "no device")
	case isTag && value == "":
		wrong("device", "write "+o.Device+" and what blkid shows", "%q names nothing", o.Device)
	case isTag && (bind || network(o.Fstype)):
		wrong("device", "", "%q is a disk, which does not fit", o.Device)
	case bind && !filepath.IsAbs(o.Device):
		wrong("device", "write the whole path, from /", "%q is no directory that can be bound", o.Device)
	case network(o.Fstype) && (server == "" || path == "" && !strings.HasSuffix(o.Device, ":/") || o.Device[0] == '-' || o.Device[0] == '/'):
		wrong("device", "write server:/path", "%q is no export of an NFS server", o.Device)
	}
	if !filepath.IsAbs(o.Mountpoint) || filepath.Clean(o.Mountpoint) != o.Mountpoint || o.Mountpoint == "/" || strings.ContainsRune(o.Mountpoint, 0) {
		wrong("mountpoint", "write the whole path, from /, without . and .. and / at its end", "%q is no mount point", o.Mountpoint)
	}
	kind, _, _ := strings.Cut(o.Fstype, ".")
	switch {
	case o.Fstype == "" || strings.ContainsAny(o.Fstype, "/ \t\n\x00") || o.Fstype[0] == '-':
		wrong("fstype", `write the type, such as "ext4" or "xfs"`, "%q is no file system type", o.Fstype)
	case slices.Contains([]string{"cifs", "smb3", "fuse"}, kind):
		wrong("fstype", "", "%s needs a mount helper, which is not supported", o.Fstype)
	case bind != (o.Fstype == "none"):
		wrong("fstype", `write fstype = "none" together with the option bind`, "%q does not fit the options", o.Fstype)
	}
	switch {
	case !slices.Contains([]string{fsckAuto, fsckNever, fsckPreen, fsckFull}, o.Fsck):
		wrong("fsck", "write auto, never, preen or full", "%q is no policy", o.Fsck)
	case !checkable(o.Fstype) && (o.Fsck == fsckPreen || o.Fsck == fsckFull):
		wrong("fsck", "write auto", "%s has nothing to check beforehand: its log is replayed by the mount, and repairs are an operator's", o.Fstype)
	}
	if o.MonitorWrite && flags&unix.MS_RDONLY != 0 {
		wrong("monitor_write", "", "the options make it read-only")
	}
	if o.DiskTimeout < 100*time.Millisecond {
		wrong("disk_timeout", "write 100ms or more", "%s is too short", o.DiskTimeout)
	}
	if o.KillAfter < 0 {
		wrong("kill_after", "", "%s is negative", o.KillAfter)
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options: a disk, which has one file system. What an NFS server exports, a directory that
// is bound and what lives in memory may be mounted anywhere.
func (o *Options) Exclusive() (key, what string) {
	name, value, isTag := strings.Cut(o.Device, "=")
	switch {
	case filepath.IsAbs(o.Device) && o.Fstype != "none":
		return "device", filepath.Clean(o.Device)
	case isTag:
		return "device", name + "=" + strings.Trim(value, `"`)
	}
	return "", ""
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	flags, data, err := parseOptions(o.Options)
	if err != nil {
		return nil, err
	}
	return &filesystem{
		opts: *o, flags: flags, data: data, env: env,
		calls: gateOf("mount " + o.Mountpoint), tests: gateOf("test " + o.Mountpoint),
	}, nil
}

var (
	_ resources.Resource = (*filesystem)(nil)
	_ resources.Checker  = (*filesystem)(nil)
)

type filesystem struct {
	opts  Options
	flags uintptr
	data  string // what is left for the file system itself
	env   resources.Env
	calls *gate // what looks at the mount and changes it
	tests *gate // a monitor's reads and writes
}

func (f *filesystem) bind() bool    { return f.flags&unix.MS_BIND != 0 }
func (f *filesystem) network() bool { return network(f.opts.Fstype) }

func network(fstype string) bool { return fstype == "nfs" || fstype == "nfs4" }
