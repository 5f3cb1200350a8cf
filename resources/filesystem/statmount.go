package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// statmount(2) (Linux 6.8, complete since 6.14) tells one mount by its number. The mount
// table takes a millisecond to read where there are 500 mounts, this a hundredth of it; and
// it cannot be torn. Layout and masks: include/uapi/linux/mount.h.
const (
	statxMountIDUnique = 0x4000 // STATX_MNT_ID_UNIQUE

	statmountSuper      = 0x001 // STATMOUNT_SB_BASIC
	statmountMount      = 0x002 // STATMOUNT_MNT_BASIC
	statmountRoot       = 0x008 // STATMOUNT_MNT_ROOT
	statmountPoint      = 0x010 // STATMOUNT_MNT_POINT
	statmountFstype     = 0x020 // STATMOUNT_FS_TYPE
	statmountOptions    = 0x080 // STATMOUNT_MNT_OPTS
	statmountSubtype    = 0x100 // STATMOUNT_FS_SUBTYPE
	statmountSource     = 0x200 // STATMOUNT_SB_SOURCE
	statmountWanted     = statmountSuper | statmountMount | statmountRoot | statmountPoint | statmountFstype | statmountSource
	statmountStrings    = 512 // where the strings begin
	statmountBufferSize = 8192
)

var errNoStatmount = errors.New("the kernel does not tell single mounts")

// statmount asks for one mount, by its unique ID.
func statmount(id uint64) (entry, error) {
	request := struct {
		size, spare uint32
		id, mask    uint64
	}{24, 0, id, statmountWanted | statmountOptions | statmountSubtype}
	b := make([]byte, statmountBufferSize)
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno == unix.ENOENT {
		return entry{}, errTorn // gone meanwhile
	}
	if errno != 0 {
		return entry{}, errNoStatmount // also EOVERFLOW: longer than any sane mount
	}
	return parseStatmount(b)
}

func parseStatmount(b []byte) (entry, error) {
	if len(b) < statmountStrings {
		return entry{}, errNoStatmount
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	text := func(at int) string {
		start := statmountStrings + uint64(u32(at))
		if start >= uint64(len(b)) {
			return ""
		}
		s, _, _ := bytes.Cut(b[start:], []byte{0})
		return string(s)
	}
	mask := u64(8)
	if mask&statmountWanted != statmountWanted { // an older kernel
		return entry{}, errNoStatmount
	}
	e := entry{
		id: uint64(u32(56)), parent: uint64(u32(60)), dev: unix.Mkdev(u32(16), u32(20)),
		root: text(104), mountpoint: text(108), fstype: text(36), source: text(124),
		options: readWrite(u64(64)&unix.MOUNT_ATTR_RDONLY != 0), super: readWrite(u32(32)&unix.MS_RDONLY != 0),
	}
	if mask&statmountSubtype != 0 {
		e.fstype += "." + text(120)
	}
	if mask&statmountOptions != 0 {
		e.super += "," + text(4)
	}
	return e, nil
}

func readWrite(readOnly bool) string {
	if readOnly {
		return "ro"
	}
	return "rw"
}
