package ocf

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	mostStdout = 16 << 10
	mostStderr = 16 << 10
	// mostRest is what is still read of a pipe after the agent has ended: more than fits into one.
	mostRest = 2 << 20
)

// capture is one output of a run. What a service inherits from its agent outlives the run and the daemon,
// so its end of the pipe is open for reading too: the kernel never finds the pipe without a reader, and
// sends no SIGPIPE to a service that prints. When the agent has ended, that end no longer
// blocks: what nobody reads is lost, and holds nobody up.
type capture struct {
	r, w *os.File
	done chan struct{} // closed when nobody reads any more
	buf  io.Writer
	over bool
}

func newCapture(buf io.Writer) (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("pipe for what it prints: %w", err)
	}
	c := &capture{r: r, w: os.NewFile(uintptr(fd), "pipe"), done: make(chan struct{}), buf: buf}
	go func() {
		defer close(c.done)
		_, _ = io.CopyBuffer(onlyWriter{buf}, onlyReader{r}, make([]byte, 32<<10)) // ends when the pipe is closed, or finish says so
	}()
	return c, nil
}

// onlyReader and onlyWriter keep io.Copy from splicing.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// finish reads what an agent that has ended has left in the pipe, and lets go of it.
func (c *capture) finish() {
	if c.over {
		return
	}
	c.over = true
	_ = unix.SetNonblock(int(c.w.Fd()), true)
	_ = c.r.SetReadDeadline(time.Unix(1, 0))
	<-c.done
	_ = c.r.SetReadDeadline(time.Time{})
	if raw, err := c.r.SyscallConn(); err == nil {
		_ = raw.Read(c.drain)
	}
	c.r.Close()
	c.w.Close()
}

func (c *capture) drain(fd uintptr) bool {
	b := make([]byte, 32<<10)
	for total := 0; total < mostRest; {
		n, err := unix.Read(int(fd), b)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		total += n
		_, _ = c.buf.Write(b[:n])
	}
	return true
}

// head keeps the beginning of what is written to it, and swallows the rest.
type head struct {
	most int
	buf  []byte
	cut  bool
}

func (h *head) Write(b []byte) (int, error) {
	room := h.most - len(h.buf)
	h.cut = h.cut || len(b) > room
	h.buf = append(h.buf, b[:min(room, len(b))]...)
	return len(b), nil
}

// tail keeps the last lines: the reason of a failure is printed last.
type tail struct {
	most int
	buf  []byte
	cut  bool
}

func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	if over := n - t.most; over > 0 {
		b, t.buf, t.cut = b[over:], t.buf[:0], true
	}
	if over := len(t.buf) + len(b) - t.most; over > 0 {
		t.buf, t.cut = append(t.buf[:0], t.buf[over:]...), true
	}
	t.buf = append(t.buf, b...)
	return n, nil
}

// text begins with a whole line: half of a secret would not be recognized.
func (t *tail) text() string {
	b := t.buf
	if t.cut {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return string(b)
}

const (
	// reasonMark stands before the reason of a failure (ocf_exit_reason of ocf-shellfuncs).
	reasonMark = "ocf-exit-reason:"
	mostLines  = 3
	mostRunes  = 300
)

// stamp is what ocf_log puts before a message.
var stamp = regexp.MustCompile(`^(?:[A-Z][a-z]{2} +\d+ )?\d\d:\d\d:\d\d *`)

// says is what the agent said of its run, fit for logs and errors: its reason, else its last lines.
func (r result) says() string {
	reason, text := "", r.stderr
	if strings.TrimSpace(text) == "" {
		text = r.stdout
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if said, ok := strings.CutPrefix(line, reasonMark); ok {
			reason = strings.TrimSpace(said)
			continue
		}
		line = strings.TrimSpace(stamp.ReplaceAllString(line, ""))
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if reason == "" {
		reason = strings.Join(lines[max(0, len(lines)-mostLines):], "; ")
	}
	said := clip(hide(reason, r.secrets), mostRunes)
	if said == "" {
		return r.ending
	}
	return r.ending + ": " + said
}

const (
	hidden = "[secret]"
	// shortest is the length from which on a secret can be told from ordinary text.
	shortest = 4
)

// hide takes secrets out of a text. Where one is too short to be found, or may be there in another spelling
// (quoted, escaped, in part), nothing of the text is left.
func hide(s string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= shortest {
			s = strings.ReplaceAll(s, secret, hidden)
		}
	}
	for _, secret := range secrets {
		if secret != "" && len(secret) < shortest && strings.Contains(s, secret) {
			return hidden
		}
		parts := strings.FieldsFunc(secret, func(r rune) bool { return !isLetter(r) })
		whole := strings.Join(parts, "")
		if len(parts) > 1 && len(whole) >= shortest && strings.Contains(letters(s), whole) {
			return hidden
		}
		for _, part := range parts {
			if len(part) >= shortest && strings.Contains(s, part) {
				return hidden
			}
		}
	}
	return s
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if isLetter(r) {
			return r
		}
		return -1
	}, s)
}

// clip makes text printable and short.
func clip(s string, longest int) string {
	runes := []rune(s)
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = '?'
		}
	}
	return string(runes)
}
