package filesystem

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// users finds the processes that hold exactly this mount: by working directory, root,
// program, open files or mapped files; also by the copy of it that their own mount namespace
// took along; with gone, by such copies only, as the mount's ID may be another's by now. Paths of
// what they hold are never compared. The daemon and the init process are left out, whatever they hold.
func users(mount entry, gone bool) ([]process.Process, error) {
	w := wanted{dev: mount.dev, ids: map[uint64]bool{}}
	if !gone {
		w.ids[mount.id] = true
	}
	left, err := copies(mount)
	if err != nil {
		return nil, err
	}
	for _, c := range left {
		w.ids[c.id] = true
	}
	if len(w.ids) == 0 {
		return nil, nil
	}
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var found []process.Process
	for _, p := range all {
		if !p.Kernel && !p.Ended() && p.PID != 1 && p.PID != os.Getpid() && w.usedBy(p.PID) {
			found = append(found, p)
		}
	}
	return found, nil
}

// wanted is one mount with its copies. No two mounts of a host have the same ID.
type wanted struct {
	dev uint64
	ids map[uint64]bool
}

// usedBy takes what it may not read, or what has gone meanwhile, for unused: the kernel
// refuses the unmount then, and has the last word.
func (w wanted) usedBy(pid int) bool {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	for _, link := range []string{"cwd", "root", "exe"} {
		if w.reachedBy(dir, link) {
			return true
		}
	}
	for _, fd := range fileNames(dir, "fd") {
		if w.reachedBy(dir, "fd/"+fd) {
			return true
		}
	}
	return w.mappedBy(dir)
}

func fileNames(dir int, name string) []string {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

func (w wanted) reachedBy(dir int, link string) bool {
	id, err := heldMount(dir, link)
	return err == nil && w.ids[id]
}

// mappedBy looks closer only at mapped files of the mount's device, because a process has
// hundreds of others. See proc_pid_maps(5) for the fields.
func (w wanted) mappedBy(dir int) bool {
	fd, err := unix.Openat(dir, "maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "maps")
	defer f.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(f)
	dev := fmt.Appendf(nil, " %02x:%02x ", unix.Major(w.dev), unix.Minor(w.dev))
	for line := range bytes.Lines(b.Bytes()) {
		if !bytes.Contains(line, dev) {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) > 4 && bytes.Equal(fields[3], bytes.TrimSpace(dev)) && w.reachedBy(dir, "map_files/"+mapName(string(fields[0]))) {
			return true
		}
	}
	return false
}

// mapName turns the range of a line of maps into its name in map_files, which has no
// leading zeroes (proc_pid_map_files(5)).
func mapName(span string) string {
	from, to, _ := bytes.Cut([]byte(span), []byte("-"))
	trim := func(b []byte) string {
		if t := bytes.TrimLeft(b, "0"); len(t) > 0 {
			return string(t)
		}
		return "0"
	}
	return trim(from) + "-" + trim(to)
}
