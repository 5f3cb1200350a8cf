package bus

import (
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Properties are those of one D-Bus interface of a unit: org.freedesktop.systemd1(5). What is missing or has an
// unexpected type reads as the zero value, which no decision takes for a good one.
type Properties map[string]any

// Text reads a property that is a string.
func (p Properties) Text(name string) string {
	s, _ := p[name].(string)
	return s
}

// Texts reads a list of strings.
func (p Properties) Texts(name string) []string {
	s, _ := p[name].([]string)
	return s
}

// Flag reads a boolean.
func (p Properties) Flag(name string) bool {
	b, _ := p[name].(bool)
	return b
}

// PID reads a property that is the number of a process; 0 is none.
func (p Properties) PID(name string) int { return int(p.number(name)) }

// number reads whichever integer type the property has.
func (p Properties) number(name string) int64 {
	switch n := p[name].(type) {
	case uint32:
		return int64(n)
	case int32:
		return int64(n)
	}
	return 0
}

// Job is the number of the job that is queued for the unit or runs; 0 is none. The property has the number and the path.
func (p Properties) Job() uint32 {
	pair, _ := p["Job"].([]any)
	if len(pair) == 0 {
		return 0
	}
	id, _ := pair[0].(uint32)
	return id
}

// Invocation is the number that systemd makes for each time that the unit starts.
func (p Properties) Invocation() string {
	b, _ := p["InvocationID"].([]byte)
	return hex.EncodeToString(b)
}

// IsActive reports whether the unit runs, by its ActiveState.
func (p Properties) IsActive() bool {
	switch p.Text("ActiveState") {
	case "active", "reloading", "refreshing":
		return true
	}
	return false
}

// IsDown reports whether it has certainly ended.
func (p Properties) IsDown() bool {
	switch p.Text("ActiveState") {
	case "inactive", "failed":
		return true
	}
	return false
}

// State says how the unit is, as systemctl does: "active (running)".
func (p Properties) State() string {
	active := p.Text("ActiveState")
	if active == "" {
		return "in a state that systemd does not tell"
	}
	if sub := p.Text("SubState"); sub != "" && sub != active && sub != "dead" {
		active += " (" + sub + ")"
	}
	return active
}

// Ending says how the service's main process ended, from its properties as a service.
func (p Properties) Ending() string {
	var parts []string
	if result := p.Text("Result"); result != "" && result != "success" {
		parts = append(parts, "Result "+result)
	}
	// ExecMainCode is si_code of SIGCHLD: sigaction(2).
	code, status, which := p.number("ExecMainCode"), p.number("ExecMainStatus"), "its main process"
	if code == 0 {
		code, status, which = p.startEnding()
	}
	switch code {
	case cldExited:
		parts = append(parts, fmt.Sprintf("%s ended with status %d", which, status))
	case cldKilled, cldDumped:
		parts = append(parts, fmt.Sprintf("%s was ended by %s", which, signalName(status)))
	}
	if n := p.number("NRestarts"); n > 0 {
		parts = append(parts, fmt.Sprintf("restarted by systemd %d times", n))
	}
	return strings.Join(parts, ", ")
}

// startEnding is about a service without a main process: how the program ended that starts it. The last two fields of the
// property are its si_code and its status.
func (p Properties) startEnding() (code, status int64, which string) {
	list, _ := p["ExecStart"].([][]any)
	if len(list) != 1 || len(list[0]) != 10 {
		return 0, 0, ""
	}
	last := Properties{"code": list[0][8], "status": list[0][9]}
	if code = last.number("code"); code == cldExited && last.number("status") == 0 {
		return 0, 0, ""
	}
	return code, last.number("status"), "its start command"
}

// results are the words for the results of jobs: org.freedesktop.systemd1(5), signal JobRemoved.
var results = map[string]string{
	"done":        "is done",
	"failed":      "failed",
	"canceled":    "was cancelled by somebody else",
	"timeout":     "took longer than systemd allows",
	"dependency":  "failed because something that the unit needs did not start",
	"skipped":     "was skipped because it does not apply to the unit's state",
	"invalid":     "does not fit the unit's type",
	"assert":      "failed because an assertion of the unit (Assert...=) does not hold",
	"unsupported": "is not supported by this host",
	"collected":   "was dropped",
	"once":        "was refused because the unit may start only once in a boot",
	"frozen":      "was refused because the unit is frozen",
	"":            "ended, and systemd did not tell how",
}

// ResultWords says how a job ended, as the rest of a sentence.
func ResultWords(result string) string {
	if words, ok := results[result]; ok {
		return words
	}
	return fmt.Sprintf("ended as %q", result)
}

// Values of ExecMainCode.
const (
	cldExited = 1
	cldKilled = 2
	cldDumped = 3
)

func signalName(n int64) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
