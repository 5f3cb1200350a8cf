package filesystem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// tags are the names that udev gives to disks by what is on them, and its folders of links.
var tags = map[string]string{"UUID": "uuid", "LABEL": "label", "PARTUUID": "partuuid", "PARTLABEL": "partlabel"}

// tag takes UUID=1234-ABCD apart. A path is no tag, whatever is in it.
func tag(device string) (folder, value string, ok bool) {
	name, value, _ := strings.Cut(device, "=")
	folder, ok = tags[name]
	return folder, strings.Trim(value, `"`), ok && strings.Contains(device, "=")
}

// linkName writes a value as udev does in the names of its links (blkid_encode_string of libblkid): all but plain
// characters, and whole characters of UTF-8, as \xNN.
func linkName(value string) string {
	var b strings.Builder
	for len(value) > 0 {
		r, n := utf8.DecodeRuneInString(value)
		c := value[0]
		plain := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("#+-.:=@_", c) >= 0
		if plain || r != utf8.RuneError && n > 1 {
			b.WriteString(value[:n])
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
			n = 1
		}
		value = value[n:]
	}
	return b.String()
}

// path is where the device is found.
func (f *filesystem) path() string {
	if folder, value, ok := tag(f.opts.Device); ok {
		return "/dev/disk/by-" + folder + "/" + linkName(value)
	}
	return f.opts.Device
}

// source is what the configured device is now.
type source struct {
	path    string
	dev     uint64   // number of the block device
	block   bool     // it is one
	missing bool     // a path that leads nowhere
	members []uint64 // all devices of the mounted btrfs that has this one; else this one
}

func (f *filesystem) source() (source, error) {
	s := source{path: f.path()}
	if !filepath.IsAbs(s.path) || f.network() {
		return s, nil
	}
	var st unix.Stat_t
	err := unix.Stat(s.path, &st)
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.missing = true
		return s, nil
	case err != nil:
		return s, fmt.Errorf("device %s: %w", s.path, fault(err))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		s.dev, s.block = st.Rdev, true
		s.members = []uint64{s.dev}
		if f.opts.Fstype == "btrfs" {
			s.members = btrfsMembers(s.dev)
		}
	}
	return s, nil
}

// numbered is the block device of that number, if there still is one.
func numbered(dev uint64) source {
	name := sysName(dev)
	return source{path: "/dev/" + strings.ReplaceAll(name, "!", "/"), dev: dev, members: []uint64{dev}, missing: name == ""}
}

// errMissing says what to do about a device that is not there.
func (f *filesystem) errMissing() error {
	if _, _, ok := tag(f.opts.Device); ok {
		return fmt.Errorf("%w: there is no %s on this node (no %s); if blkid shows it, udev missed it: run udevadm trigger --subsystem-match=block, or name the device by its path",
			resources.ErrNode, f.opts.Device, f.path())
	}
	return fmt.Errorf("%w: there is no %s on this node", resources.ErrNode, f.opts.Device)
}

// isOurs compares a mount with what is configured.
func (f *filesystem) isOurs(e entry, s source) bool {
	switch {
	case f.bind():
		return sameFile(s.path, f.opts.Mountpoint)
	case f.network(): // nfs is shown as nfs4 when the server speaks version 4
		return network(e.fstype) && strings.TrimRight(e.source, "/") == strings.TrimRight(s.path, "/")
	case s.block:
		return e.fstype == f.opts.Fstype && s.holds(e)
	case s.missing:
		return false
	default:
		return e.fstype == f.opts.Fstype && e.source == s.path
	}
}

// holds reports whether the entry's file system is on the block device. A file system with
// a number of its own (btrfs) is known by one of its devices, which it names as its source.
func (s source) holds(e entry) bool {
	if slices.Contains(s.members, e.dev) {
		return true
	}
	if unix.Major(e.dev) != 0 || !filepath.IsAbs(e.source) {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(e.source, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && slices.Contains(s.members, st.Rdev)
}

// btrfsMembers gives the devices of the mounted btrfs that a block device belongs to, by
// /sys/fs/btrfs/UUID/devices, which asks no disk.
func btrfsMembers(dev uint64) []uint64 {
	name := sysName(dev)
	found, _ := filepath.Glob("/sys/fs/btrfs/*/devices/" + name)
	if name == "" || len(found) == 0 {
		return []uint64{dev}
	}
	names, _ := os.ReadDir(filepath.Dir(found[0]))
	members := []uint64{dev}
	for _, n := range names {
		if m, ok := sysNumber(n.Name()); ok && m != dev {
			members = append(members, m)
		}
	}
	return members
}

// sysName is the kernel's name of a block device, as in /sys/class/block; empty if it has gone.
func sysName(dev uint64) string {
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

func sysNumber(name string) (uint64, bool) {
	b, err := os.ReadFile("/sys/class/block/" + name + "/dev")
	if err != nil {
		return 0, false
	}
	return parseNumber(strings.TrimSpace(string(b)))
}

// parseNumber reads a device's number as the kernel writes it, as in 8:16.
func parseNumber(s string) (uint64, bool) {
	major, minor, _ := strings.Cut(s, ":")
	x, errX := strconv.ParseUint(major, 10, 32)
	y, errY := strconv.ParseUint(minor, 10, 32)
	return unix.Mkdev(uint32(x), uint32(y)), errX == nil && errY == nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// fault marks what the kernel says of a disk that is gone or broken.
func fault(err error) error {
	for _, e := range []unix.Errno{unix.EIO, unix.ENXIO, unix.EREMOTEIO, unix.ENOMEDIUM, unix.ENOLINK, unix.EBADE, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.EHOSTDOWN} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", resources.ErrNode, err)
		}
	}
	if errors.Is(err, unix.EUCLEAN) {
		return fmt.Errorf("%w: the file system is damaged: %w", resources.ErrSetup, err)
	}
	return err
}
