package fake

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Behavior is how a device treats those who ask it. The zero value is a device that
// answers at once, truthfully, and obeys. The faults may be combined.
type Behavior struct {
	Answer   time.Duration `toml:"answer" doc:"how long the device takes to answer a call"`
	Lag      time.Duration `toml:"lag" doc:"time from an accepted command to its effect"`
	Rebound  time.Duration `toml:"rebound" doc:"a plug switched off comes on again by itself after this time"`
	Rebounds int           `toml:"rebounds" doc:"how often that happens; 0 is always"`
	Command  string        `toml:"command" doc:"what a command does: obey, ignore (accepted, no effect), refuse (error, no effect) or error (error, but obeyed)"`
	Status   string        `toml:"status" doc:"what a read answers: true, on, off, unknown, missing, error or credentials (an error that lasts)"`
	Reads    []string      `toml:"reads" doc:"the answers of the next reads, one word each as for status; then status holds"`
	Stall    []string      `toml:"stall" doc:"calls that are never answered: status, off, on, close, open, identity or check"`
	Deaf     bool          `toml:"deaf" doc:"a stalled call does not even end with its context"`
	Login    bool          `toml:"login_fails" doc:"every call fails as with a wrong password"`
	Sessions int           `toml:"sessions" doc:"how many sessions the device has; 0 is no limit"`
	UUID     string        `toml:"uuid" doc:"what the device names as the UUID of the machine behind each plug"`
	Serial   string        `toml:"serial" doc:"the same for the serial number"`
	Outlet   string        `toml:"outlet" doc:"what the device names as the outlet's name"`
	Identity string        `toml:"identity" doc:"what a question for those three answers: true or error"`
	Check    string        `toml:"check" doc:"what a check of the right to switch answers: ok, privilege, plug, unfit or error"`
}

var (
	commandWords = []string{"", "obey", "ignore", "refuse", "error"}
	statusWords  = []string{"", "true", "on", "off", "unknown", "missing", "error", "credentials"}
	callWords    = []string{"status", "off", "on", "close", "open", "identity", "check"}
	nameWords    = []string{"", "true", "error"}
	checkWords   = []string{"", "ok", "privilege", "plug", "unfit", "error"}
)

// problems gives a *agents.KeyError for each word or number that means nothing.
func (b Behavior) problems() []error {
	var errs []error
	word := func(key, value string, known []string) {
		if !slices.Contains(known, value) {
			errs = append(errs, &agents.KeyError{
				Key: key, Msg: fmt.Sprintf("%q is not known", value),
				Cure: "use one of " + strings.Join(slices.DeleteFunc(slices.Clone(known), func(s string) bool { return s == "" }), ", "),
			})
		}
	}
	word("command", b.Command, commandWords)
	word("status", b.Status, statusWords)
	word("identity", b.Identity, nameWords)
	word("check", b.Check, checkWords)
	for _, r := range b.Reads {
		word("reads", r, statusWords)
	}
	for _, s := range b.Stall {
		word("stall", s, callWords)
	}
	count := func(key string, negative bool) {
		if negative {
			errs = append(errs, &agents.KeyError{Key: key, Msg: "must not be negative"})
		}
	}
	count("answer", b.Answer < 0)
	count("lag", b.Lag < 0)
	count("rebound", b.Rebound < 0)
	count("rebounds", b.Rebounds < 0)
	count("sessions", b.Sessions < 0)
	return errs
}

// reading is what a read answers, given the truth.
func (b *Behavior) reading(truth agents.PowerState) (agents.Reading, error) {
	word := b.Status
	if len(b.Reads) > 0 {
		word, b.Reads = b.Reads[0], b.Reads[1:]
	}
	switch word {
	case "on":
		return agents.Reading{State: agents.On, Detail: "On"}, nil
	case "off":
		return agents.Reading{State: agents.Off, Detail: "Off"}, nil
	case "unknown":
		return agents.Reading{Detail: "PoweringOff"}, nil
	case "missing":
		return agents.Reading{Detail: "<missing>"}, nil
	case "error":
		return agents.Reading{}, ErrDevice
	case "credentials":
		return agents.Reading{}, ErrLogin
	default:
		if truth == agents.Off {
			return agents.Reading{State: agents.Off, Detail: "Off"}, nil
		}
		return agents.Reading{State: agents.On, Detail: "On"}, nil
	}
}

// rights is what a check of the right to switch answers.
func (b *Behavior) rights() error {
	switch b.Check {
	case "privilege":
		return agents.ErrPrivilege
	case "plug":
		return ErrPlug
	case "unfit":
		return agents.ErrUnfit
	case "error":
		return ErrDevice
	default:
		return nil
	}
}
