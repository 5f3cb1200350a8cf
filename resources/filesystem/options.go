package filesystem

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

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

// ignored reports whether an option is for neither the kernel nor a mount program.
func ignored(option string) bool {
	flag, known := flagOptions[option]
	return option == "" || strings.HasPrefix(option, "x-") || known && flag.set == 0 && flag.clear == 0
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
