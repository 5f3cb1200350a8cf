package lvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// device is a mapped device of the group, as the kernel names it.
type device struct {
	kernel string // dm-3
	name   string // group-volume, see groupOf
	uuid   string // see uuidPrefix
}

// uuidPrefix begins the UUID of every mapped device of LVM. The UUIDs of the group and of the volume follow, without their hyphens, then
// a suffix if it is a part of a volume (build_dm_uuid of LVM's lib/activate/dev_manager.c).
const uuidPrefix = "LVM-"

// uuidLen is the length of an LVM UUID without its hyphens.
const uuidLen = 32

// devices looks at all mapped devices of this host for those of the group: by the group's name, and by its UUID where that is
// known, since a group may be renamed while it is active.
func (v *volumeGroup) devices(groupUUID string) ([]device, error) {
	dir, err := os.Open(v.sys)
	if err != nil {
		return nil, fmt.Errorf("look for mapped devices: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look for mapped devices: %w", err)
	}
	var found []device
	for _, kernel := range names {
		if !strings.HasPrefix(kernel, "dm-") {
			continue
		}
		d, err := v.device(kernel)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", kernel, err)
		}
		rest, isLVM := strings.CutPrefix(d.uuid, uuidPrefix)
		if isLVM && (groupOf(d.name) == v.name() || groupUUID != "" && strings.HasPrefix(rest, groupUUID)) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b device) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func (v *volumeGroup) device(kernel string) (device, error) {
	uuid, err := readAttribute(filepath.Join(v.sys, kernel, "dm/uuid"))
	if err != nil {
		return device{}, err
	}
	name, err := readAttribute(filepath.Join(v.sys, kernel, "dm/name"))
	return device{kernel: kernel, name: name, uuid: uuid}, err
}

// still reports whether all of these are what they were.
func (v *volumeGroup) still(ds []device) bool {
	for _, d := range ds {
		if uuid, err := readAttribute(filepath.Join(v.sys, d.kernel, "dm/uuid")); err != nil || uuid != d.uuid {
			return false
		}
	}
	return true
}

// disks are the devices below the group's own: disks, partitions, multipath maps. The error names one that is gone.
func (v *volumeGroup) disks(ds []device) ([]string, error) {
	var disks []string
	for _, d := range ds {
		dir := filepath.Join(v.sys, d.kernel, "slaves")
		below, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("disks of %s: %w", d.name, err)
		}
		for _, e := range below {
			disk := e.Name()
			if slices.Contains(disks, disk) || slices.ContainsFunc(ds, func(d device) bool { return d.kernel == disk }) {
				continue
			}
			// The mapped device keeps its link to a disk that was taken away.
			if err := unix.Access(filepath.Join(dir, disk, "dev"), unix.F_OK); err != nil {
				return nil, fmt.Errorf("disk %s of %s is gone", disk, d.name)
			}
			disks = append(disks, disk)
		}
	}
	return disks, nil
}

// groupOf gives the group in the name of a mapped device of LVM: group-volume or group-volume-layer, with each hyphen inside a
// name doubled (build_dm_name of libdm). It is empty for other names.
func groupOf(name string) string {
	var group strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '-' {
			if i+1 == len(name) {
				return ""
			}
			if name[i+1] != '-' {
				return group.String()
			}
			i++
		}
		group.WriteByte(name[i])
	}
	return ""
}

// of reports whether the device is the volume, or a part of it.
func (d device) of(groupUUID string, v volume) bool {
	return strings.HasPrefix(d.uuid, uuidPrefix+groupUUID+v.UUID)
}

// readAttribute reads a small file of sysfs; a monitor reads many.
func readAttribute(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var b [256]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(b[:n]), "\n"), nil
}

// isGone reports whether a device went away while it was looked at.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}
