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
// program, open files or mapped files. Paths are never compared. The daemon and the init
// process are left out, whatever they hold.
func users(mount entry) ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var found []process.Process
	for _, p := range all {
		if !p.Kernel && !p.Ended() && p.PID != 1 && p.PID != os.Getpid() && uses(p.PID, mount) {
			found = append(found, p)
		}
	}
	return found, nil
}

// uses takes what it may not read, or what has gone meanwhile, for unused: the kernel
// refuses the unmount then, and has the last word.
func uses(pid int, mount entry) bool {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	for _, link := range []string{"cwd", "root", "exe"} {
		if leadsInto(dir, link, mount.id) {
			return true
		}
	}
	fds, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	for _, fd := range fds {
		if leadsInto(dir, "fd/"+fd.Name(), mount.id) {
			return true
		}
	}
	return maps(dir, pid, mount)
}

func leadsInto(dir int, link string, mount uint64) bool {
	id, _, err := mountID(dir, link)
	return err == nil && id == mount
}

// maps looks closer only at mapped files of the mount's device, because a process has
// hundreds of others. See proc_pid_maps(5) for the fields.
func maps(dir, pid int, mount entry) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		return false
	}
	dev := fmt.Appendf(nil, "%02x:%02x", unix.Major(mount.dev), unix.Minor(mount.dev))
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) < 5 || !bytes.Equal(fields[3], dev) {
			continue
		}
		if leadsInto(dir, "map_files/"+mapName(string(fields[0])), mount.id) {
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
