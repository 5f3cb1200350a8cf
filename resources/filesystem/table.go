package filesystem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// entry is one line of /proc/self/mountinfo, described in proc_pid_mountinfo(5).
type entry struct {
	id, parent uint64
	dev        uint64 // of the superblock
	root       string // what of the file system is mounted
	mountpoint string
	options    string // of the mount
	fstype     string
	source     string
	super      string // options of the superblock
}

// String says what is mounted where, for operators.
func (e entry) String() string { return fmt.Sprintf("%s (%s) at %s", e.source, e.fstype, e.mountpoint) }

// readOnly reports whether the mount or its whole file system refuses writes.
func (e entry) readOnly() bool {
	return has(e.options, "ro") || has(e.super, "ro")
}

// broken is the word of a file system that has given up after errors, beside read-only:
// ext4 says emergency_ro or shutdown since Linux 6.15, when it stopped to say ro.
func (e entry) broken() string {
	for _, word := range []string{"shutdown", "emergency_ro"} {
		if has(e.super, word) {
			return word
		}
	}
	return ""
}

func has(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

var errTable = errors.New("mount table has an unknown form")

func parseTable(b []byte) ([]entry, error) {
	var all []entry
	for line := range strings.Lines(string(b)) {
		e, err := parseEntry(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// parseEntry reads fields divided by one blank each: a source may be empty. Between
// the options and a lone "-" stand any number of fields that are of no interest here.
func parseEntry(line string) (e entry, err error) {
	fields := strings.Split(line, " ")
	if len(fields) < 10 {
		return entry{}, fmt.Errorf("%w: %q", errTable, line)
	}
	dash := slices.Index(fields[6:], "-")
	if dash < 0 || len(fields) < 6+dash+4 {
		return entry{}, fmt.Errorf("%w: %q", errTable, line)
	}
	tail := fields[6+dash+1:]
	major, minor, _ := strings.Cut(fields[2], ":")
	var errs [4]error
	var maj, mnr uint64
	e.id, errs[0] = strconv.ParseUint(fields[0], 10, 64)
	e.parent, errs[1] = strconv.ParseUint(fields[1], 10, 64)
	maj, errs[2] = strconv.ParseUint(major, 10, 32)
	mnr, errs[3] = strconv.ParseUint(minor, 10, 32)
	if errors.Join(errs[:]...) != nil {
		return entry{}, fmt.Errorf("%w: %q", errTable, line)
	}
	e.dev = unix.Mkdev(uint32(maj), uint32(mnr))
	e.root, e.mountpoint, e.options = unescape(fields[3]), unescape(fields[4]), fields[5]
	e.fstype, e.source = unescape(tail[0]), unescape(tail[1])
	e.super = strings.Join(tail[2:], " ")
	return e, nil
}

// unescape undoes the kernel's mangling: a backslash and three octal digits for one byte.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// tries is how often the mount table is read anew when it may be torn.
const tries = 20

var errTorn = errors.New("the mount table does not show a mount that is there")

// readTable reads the mount table. It comes in pieces that are not of one instant, so
// a table without a mount that the kernel has just named is read again.
func readTable(read func() ([]byte, error), id uint64, wanted bool) ([]entry, error) {
	for range tries {
		b, err := read()
		if err != nil {
			return nil, err
		}
		table, err := parseTable(b)
		if err != nil {
			return nil, err
		}
		if !wanted || slices.ContainsFunc(table, func(e entry) bool { return e.id == id }) {
			return table, nil
		}
	}
	return nil, errTorn
}

func ownTable() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }

// wholeTable reads the table of one instant: the kernel tells by poll(2) whether any mount came
// or went since the file was opened.
func wholeTable() ([]entry, error) {
	for i := range tries {
		time.Sleep(time.Duration(i) * time.Millisecond)
		f, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(f)
		events := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if err == nil {
			_, err = unix.Poll(events, 0)
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
		if err == nil && events[0].Revents&(unix.POLLPRI|unix.POLLERR) == 0 {
			return parseTable(b)
		}
	}
	return nil, errTorn
}
