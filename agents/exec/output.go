package exec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// head keeps the beginning of what is written to it, and swallows the rest, so that a program
// that prints without end is not held up.
type head struct {
	most int
	buf  []byte
	cut  bool
}

func (h *head) Write(b []byte) (int, error) {
	room := h.most - len(h.buf)
	if len(b) > room {
		h.cut = true
	}
	h.buf = append(h.buf, b[:min(room, len(b))]...)
	return len(b), nil
}

func (h *head) text() string { return string(h.buf) }

// tail keeps the last lines: the reason of a failure is printed last.
type tail struct {
	most int
	buf  []byte
	cut  bool
}

func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	if over := len(b) - t.most; over > 0 {
		b, t.buf, t.cut = b[over:], nil, true
	}
	if over := len(t.buf) + len(b) - t.most; over > 0 {
		t.buf, t.cut = append([]byte(nil), t.buf[over:]...), true
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

// censor takes secrets out of what an agent says.
type censor struct {
	spellings []string // replaced
	parts     []string // lines with one of them are left out
	bare      []string // likewise, in a line that is reduced to its letters and digits
	unquoted  []string // likewise, in a line without backslashes and quotes
}

const (
	replacement = "[secret]"
	leftOut     = "[a line that holds a secret]"
	// shortest is the length from which on a secret can be told from ordinary text. What is
	// shorter cannot be cut out without showing where it was.
	shortest = 4
)

func newCensor(secrets []string) censor {
	var c censor
	for _, s := range secrets {
		if s == "" {
			continue
		}
		for _, spelling := range spellings(s) {
			if len(spelling) < shortest {
				c.parts = append(c.parts, spelling)
			} else {
				c.spellings = append(c.spellings, spelling)
			}
		}
		// A secret without odd characters is spelled in one way. Others may be escaped in ways
		// that nobody thought of: then what remains of them gives them away.
		if bare := letters(s); bare != s {
			runs := strings.FieldsFunc(s, func(r rune) bool { return !isLetter(r) })
			c.parts = append(c.parts, slices.DeleteFunc(runs, func(run string) bool { return len(run) < shortest })...)
			if len(bare) >= shortest {
				c.bare = append(c.bare, bare)
			}
			if u := unquote(s); u != "" {
				c.unquoted = append(c.unquoted, u)
			}
		}
	}
	// The longest first, so that none leaves a rest of another.
	slices.SortFunc(c.spellings, func(a, b string) int { return len(b) - len(a) })
	return c
}

// spellings are the ways in which a program may print a secret.
func spellings(s string) []string {
	quoted, ascii := strconv.Quote(s), strconv.QuoteToASCII(s)
	all := []string{
		s,
		strings.ReplaceAll(s, "'", `'\''`), strings.ReplaceAll(s, "'", `'"'"'`), // shells
		quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1],
		strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`), // Python
		url.QueryEscape(s), url.PathEscape(s),
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))),
	}
	if b, err := json.Marshal(s); err == nil {
		all = append(all, string(b[1:len(b)-1]))
	}
	// In base64 a secret looks different in each of three places, and shares its first and last
	// character with what stands beside it ("user:secret").
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + s))
		skip := []int{0, 2, 3}[shift]
		if (shift+len(s))%3 != 0 {
			text = text[:len(text)-1]
		}
		if len(text)-skip > shortest {
			all = append(all, text[skip:])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if isLetter(r) {
			return r
		}
		return -1
	}, s)
}

func unquote(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("\\'\"", r) {
			return -1
		}
		return r
	}, s)
}

func (c censor) line(s string) string {
	for _, spelling := range c.spellings {
		s = strings.ReplaceAll(s, spelling, replacement)
	}
	if containsAny(s, c.parts) || containsAny(letters(s), c.bare) || containsAny(unquote(s), c.unquoted) {
		return leftOut
	}
	return s
}

func containsAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
}

// stamp is what the library of the fence agents puts before a message (LOG_FORMAT of fencing.py).
var stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?:[A-Z]+: )?`)

const (
	mostLines = 3
	mostRunes = 300
)

// say gives the last lines of what an agent printed, fit for logs and errors; empty if there are none.
func (c censor) say(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(stamp.ReplaceAllString(strings.TrimSpace(line), ""))
		if line == "" || strings.HasPrefix(line, "Please use '-h' for usage") || slices.Contains(lines, line) {
			continue
		}
		lines = append(lines, line)
	}
	lines = lines[max(0, len(lines)-mostLines):]
	for i, line := range lines {
		lines[i] = c.line(line)
	}
	return agents.Clip(strings.Join(slices.Compact(lines), "; "), mostRunes)
}
