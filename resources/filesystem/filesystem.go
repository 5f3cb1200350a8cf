// Package filesystem is the resource kind of one mounted local file system.
//
// What is mounted is asked from the kernel per mount: the mount ID of the mount point
// (statx(2)) names the entry of /proc/self/mountinfo that counts, so neither a stacked
// mount nor a table that changes while it is read can mislead it. A block device is
// told by its number, never by its name.
//
// A stop ends the users of exactly this mount, never of its parent, of mounts
// inside it, or of bind mounts of it. It never detaches lazily; and it is done only when the
// kernel says that nothing on this host holds the block device any more, in
// whatever mount namespace.
//
// System calls on a broken disk may hang. They run beside the caller, who is let go when
// its context ends; the goroutine stays until the kernel lets go of it.
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
		Name:    "filesystem",
		Doc:     "a local file system, mounted",
		Options: func() resources.Options { return &Options{KillAfter: 5 * time.Second} },
		Example: `[[group.resource]]
name = "data"
kind = "filesystem"
device = "/dev/disk/by-id/scsi-3600a"
mountpoint = "/srv/db"
fstype = "xfs"
`,
	}
}

// Options are the keys of a filesystem in hamgr.toml.
type Options struct {
	Device     string        `toml:"device" doc:"block device, best by /dev/disk/by-id; the directory to bind; or the name of a file system without a device"`
	Mountpoint string        `toml:"mountpoint" doc:"directory to mount on; it must exist"`
	Fstype     string        `toml:"fstype" doc:"type of the file system, as in mount -t; none for a bind mount"`
	Options    []string      `toml:"options" doc:"mount options, as in mount -o"`
	KillAfter  time.Duration `toml:"kill_after" doc:"time from SIGTERM to SIGKILL for processes that use the mount when it is stopped; default 5s"`
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
	tag, _, isTag := strings.Cut(o.Device, "=")
	switch {
	case o.Device == "" || strings.ContainsRune(o.Device, 0):
		wrong("device", "", "no device")
	case isTag && slices.Contains([]string{"UUID", "LABEL", "PARTUUID", "PARTLABEL"}, tag):
		wrong("device", "write /dev/disk/by-"+strings.ToLower(tag)+"/...", "%s= is not supported", tag)
	case bind && !filepath.IsAbs(o.Device):
		wrong("device", "write the whole path, from /", "%q is no directory that can be bound", o.Device)
	}
	if !filepath.IsAbs(o.Mountpoint) || filepath.Clean(o.Mountpoint) != o.Mountpoint || o.Mountpoint == "/" || strings.ContainsRune(o.Mountpoint, 0) {
		wrong("mountpoint", "write the whole path, from /, without . and .. and / at its end", "%q is no mount point", o.Mountpoint)
	}
	kind, _, _ := strings.Cut(o.Fstype, ".")
	switch {
	case o.Fstype == "" || strings.ContainsAny(o.Fstype, " \t\n\x00"):
		wrong("fstype", `write the type, such as "ext4" or "xfs"`, "%q is no file system type", o.Fstype)
	case slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "fuse"}, kind):
		wrong("fstype", "", "%s needs a mount helper, which is not supported", o.Fstype)
	case bind != (o.Fstype == "none"):
		wrong("fstype", `write fstype = "none" together with the option bind`, "%q does not fit the options", o.Fstype)
	}
	if o.KillAfter < 0 {
		wrong("kill_after", "", "%s is negative", o.KillAfter)
	}
	return errors.Join(errs...)
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	flags, data, err := parseOptions(o.Options)
	if err != nil {
		return nil, err
	}
	return &filesystem{opts: *o, flags: flags, data: data, env: env}, nil
}

var _ resources.Resource = (*filesystem)(nil)

type filesystem struct {
	opts    Options
	flags   uintptr
	data    string // what is left for the file system itself
	env     resources.Env
	pending chan struct{} // closed when the last call of mount has come back; nil before
}

func (f *filesystem) bind() bool { return f.flags&unix.MS_BIND != 0 }

// flagOptions are the options that mount(2) takes as flags: set, or cleared.
var flagOptions = map[string]struct {
	set, clear uintptr
}{
	"defaults": {}, "rw": {0, unix.MS_RDONLY}, "ro": {unix.MS_RDONLY, 0},
	"noatime": {unix.MS_NOATIME, 0}, "atime": {0, unix.MS_NOATIME},
	"nodiratime": {unix.MS_NODIRATIME, 0}, "diratime": {0, unix.MS_NODIRATIME},
	"relatime": {unix.MS_RELATIME, 0}, "norelatime": {0, unix.MS_RELATIME},
	"strictatime": {unix.MS_STRICTATIME, 0}, "lazytime": {unix.MS_LAZYTIME, 0},
	"nodev": {unix.MS_NODEV, 0}, "dev": {0, unix.MS_NODEV},
	"nosuid": {unix.MS_NOSUID, 0}, "suid": {0, unix.MS_NOSUID},
	"noexec": {unix.MS_NOEXEC, 0}, "exec": {0, unix.MS_NOEXEC},
	"sync": {unix.MS_SYNCHRONOUS, 0}, "async": {0, unix.MS_SYNCHRONOUS},
	"dirsync": {unix.MS_DIRSYNC, 0}, "silent": {unix.MS_SILENT, 0},
	"bind": {unix.MS_BIND, 0},
	// Words for other programs, which the kernel does not know.
	"_netdev": {}, "auto": {}, "noauto": {}, "nofail": {}, "nouser": {},
}

// parseOptions takes each string as a list divided by commas, as mount(8) does.
func parseOptions(options []string) (flags uintptr, data string, err error) {
	var rest []string
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			flag, known := flagOptions[option]
			name, _, _ := strings.Cut(option, "=")
			switch {
			case known:
				flags = flags&^flag.clear | flag.set
			case option == "" || strings.HasPrefix(option, "x-"):
			case slices.Contains([]string{"loop", "remount", "move", "user", "users", "owner", "offset", "rbind"}, name):
				return 0, "", fmt.Errorf("option %q is not supported", option)
			case strings.ContainsRune(option, 0):
				return 0, "", fmt.Errorf("option %q holds a NUL byte", option)
			default:
				rest = append(rest, option)
			}
		}
	}
	return flags, strings.Join(rest, ","), nil
}
