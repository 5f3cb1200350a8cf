package exec

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// What an agent's status and words mean. Off is off only if both say so, and nothing else does.
func TestReading(t *testing.T) {
	for _, c := range []struct {
		name, stdout, stderr string
		status               int
		want                 agents.PowerState
		err                  error // nil: none
	}{
		{"on", "Status: ON\n", "", 0, agents.On, nil},
		{"off", "Status: OFF\n", "", 2, agents.Off, nil},
		{"off, other spelling", "  status:   off  \n", "", 2, agents.Off, nil},
		{"off, without a line end", "Status: OFF", "", 2, agents.Off, nil},
		{"off, with warnings before it", "Warning: old\nStatus: OFF\n", "Parse error: Ignoring\n", 2, agents.Off, nil},
		{"on, without words", "", "", 0, agents.On, nil},
		{"off, without words", "", "", 2, agents.Unknown, errFailed},
		{"Python cannot open the agent", "", "python3: can't open file '/usr/sbin/fence_x': [Errno 2]\n", 2, agents.Unknown, errFailed},
		{"the agent's module is missing", "", "ModuleNotFoundError: No module named 'pycurl'\n", 1, agents.Unknown, agents.ErrUnfit},
		{"usage", "usage: fence_x [-h]\n", "error: unrecognized arguments\n", 2, agents.Unknown, errFailed},
		{"words contradict the status, on", "Status: ON\n", "", 2, agents.Unknown, nil},
		{"words contradict the status, off", "Status: OFF\n", "", 0, agents.Unknown, nil},
		{"words contradict each other, off", "Status: ON\nStatus: OFF\n", "", 2, agents.Unknown, nil},
		{"words contradict each other, on", "Status: ON\nStatus: OFF\n", "", 0, agents.Unknown, nil},
		{"off twice", "Status: OFF\nStatus: OFF\n", "", 2, agents.Unknown, nil},
		{"odd word", "Status: POWERINGOFF\n", "", 2, agents.Unknown, nil},
		{"odd word, 0", "Status: UNKNOWN\n", "", 0, agents.Unknown, nil},
		{"odd word beside off", "Status: OFF\nStatus: ERROR\n", "", 2, agents.Unknown, nil},
		{"empty word", "Status:\n", "", 2, agents.Unknown, errFailed},
		{"off on stderr alone", "", "Status: OFF\n", 2, agents.Unknown, errFailed},
		{"off in a sentence", "The Status: OFF\n", "", 2, agents.Unknown, errFailed},
		{"off, failed", "Status: OFF\n", "", 1, agents.Unknown, errFailed},
		{"off, killed", "Status: OFF\n", "", -1, agents.Unknown, errFailed},
		{"refused", "", "Connection refused\n", 3, agents.Unknown, agents.ErrUnreachable},
		{"on, as success", "Success: Already ON\n", "", 0, agents.On, nil},
	} {
		r := result{status: c.status, ending: "exit status", stdout: c.stdout, stderr: c.stderr}
		got, err := r.reading(censor{})
		if got.State != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v %q, %v; want %v", c.name, got.State, got.Detail, err, c.want)
		}
		if err != nil && got.State != agents.Unknown {
			t.Errorf("%s: a state beside an error", c.name)
		}
		if err == nil && got.Detail == "" {
			t.Errorf("%s: no detail", c.name)
		}
		r.cut = true
		if got, err := r.reading(censor{}); got.State != agents.Unknown || err == nil {
			t.Errorf("%s: believed although output is missing: %v", c.name, got)
		}
	}
}

// The same, by a program that really ends that way.
func TestReadingOfAProgram(t *testing.T) {
	for body, want := range map[string]agents.PowerState{
		`echo "Status: OFF"; exit 2`:     agents.Off,
		`echo "Status: ON"; exit 0`:      agents.On,
		`echo "Status: OFF"; exit 0`:     agents.Unknown,
		`echo "Status: OFF"; exit 1`:     agents.Unknown,
		`echo "Status: OFF"; exit 130`:   agents.Unknown,
		`echo "Status: OFF"; kill -9 $$`: agents.Unknown,
		`echo "Status: OFF"; kill -2 $$`: agents.Unknown,
		`echo "Status: ON"; exit 2`:      agents.Unknown,
		`exit 2`:                         agents.Unknown,
	} {
		r, err := open(t, script(t, body).options()).Status(within(t, 5*time.Second), "1")
		if r.State != want {
			t.Errorf("%s: %v, %v", body, r, err)
		}
	}
}

// What the agents say is told apart as far as it can be.
func TestTroubles(t *testing.T) {
	for said, want := range map[string]agents.Trouble{
		"2026-11-30 12:00:00,123 ERROR: Unable to connect/login to fencing device": agents.Unreachable,
		"Connection timed out": agents.Unreachable,
		"Failed: Unable to obtain correct plug status or plug is not available":                             agents.Other,
		"Failed: The user does not have the correct privileges to do the requested action.":                 agents.Privilege,
		"Failed: You have to enter password or password script":                                             agents.Unfit,
		"Failed: Unrecognised action 'status'":                                                              agents.Unfit,
		"Unable to run ipmitool":                                                                            agents.Unfit,
		"Failed: Can not find VM UUID by its VM name given in the <plug> parameter.":                        agents.WrongPlug,
		"Returned 1: snmpget: Authentication failure (incorrect password, community or key)":                agents.Credentials,
		"Returned 1: Timeout: No Response from 127.0.0.1:1161.":                                             agents.Unreachable,
		"Traceback (most recent call last):\n  File \"x\"\nModuleNotFoundError: No module named 'requests'": agents.Unfit,
		"":               agents.Other,
		"something else": agents.Other,
	} {
		err := result{status: 1, ending: "exit status 1", stderr: said + "\n"}.refusal(censor{})
		if got := agents.TroubleOf(err); got != want {
			t.Errorf("%s: %q, %v", said, got, err)
		}
	}
}

// Whatever is printed: off needs both, and nothing makes a panic.
func FuzzOutput(f *testing.F) {
	f.Add(2, "Status: OFF\n", "ERROR: x\n", "7")
	f.Add(0, "7,blade\n8,blade\n", "", "8")
	f.Add(2, "Status: OFF\nStatus: ON\n", "", "")
	f.Fuzz(func(t *testing.T, status int, stdout, stderr, plug string) {
		r := result{status: status, ending: "exit status", stdout: stdout, stderr: stderr}
		c := newCensor([]string{plug})
		reading, err := r.reading(c)
		if upper := strings.ToUpper(stdout); reading.State == agents.Off && (status != 2 || err != nil || !strings.Contains(upper, "STATUS") || strings.Count(upper, "OFF") == 0) {
			t.Errorf("off by %d %q", status, stdout)
		}
		if reading.State == agents.On && (status != 0 || err != nil) {
			t.Errorf("on by %d %q", status, stdout)
		}
		if len(reading.Detail) > 200 {
			t.Errorf("detail of %d bytes", len(reading.Detail))
		}
		if err := findPlug(r, []string{plug}, ",", c); err != nil && len([]rune(err.Error())) > 500 {
			t.Errorf("%v", err)
		}
	})
}
