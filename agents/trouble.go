package agents

import "errors"

// What can be wrong with a device, told apart so that an operator knows where to look and
// the engine knows what is worth another try. An agent's errors wrap one of them wherever
// it can tell; its own text says more.
var (
	// ErrUnreachable: nothing answers at the device's address. For protocols that answer
	// a wrong secret with silence (SNMP communities) the text says so.
	ErrUnreachable = errors.New("unreachable")
	// ErrCredentials: the user name, password, key or community was refused.
	ErrCredentials = errors.New("credentials refused")
	// ErrPrivilege: the account is valid, but may not switch the power.
	ErrPrivilege = errors.New("lacks the privilege to switch the power")
	// ErrUntrusted: the device's certificate, or the authenticity of its answers, does not hold.
	ErrUntrusted = errors.New("not trusted")
	// ErrPlug: the device has no such plug, or it bears another name than configured.
	ErrPlug = errors.New("wrong plug")
	// ErrIdentity: the device powers another machine than the one meant.
	ErrIdentity = errors.New("wrong machine")
	// ErrUnfit: the device answers, but cannot do what fencing needs (no forced off, an unknown
	// model, a command that is not installed).
	ErrUnfit = errors.New("cannot fence")
	// ErrBusy: the device answers that it cannot just now (no free session, updating itself).
	ErrBusy = errors.New("busy")
	// ErrProtocol: something answers, but not as the protocol prescribes.
	ErrProtocol = errors.New("not a valid answer")
)

// Trouble is the word for a kind of error, as it is shown to operators.
type Trouble string

// The words of Trouble.
const (
	NoTrouble   Trouble = ""
	Unreachable Trouble = "unreachable"
	Credentials Trouble = "wrong credentials"
	Privilege   Trouble = "wrong privilege"
	Untrusted   Trouble = "not trusted"
	WrongPlug   Trouble = "wrong plug"
	WrongNode   Trouble = "wrong machine"
	Unfit       Trouble = "cannot fence"
	Busy        Trouble = "busy"
	Protocol    Trouble = "invalid answer"
	Other       Trouble = "error"
)

var troubles = []struct {
	err     error
	trouble Trouble
	lasting bool // nothing but an operator's hand changes it
}{
	// The most telling first: an error may wrap several.
	{ErrIdentity, WrongNode, true},
	{ErrPlug, WrongPlug, true},
	{ErrPrivilege, Privilege, true},
	{ErrCredentials, Credentials, true},
	{ErrUntrusted, Untrusted, true},
	{ErrUnfit, Unfit, true},
	{ErrBusy, Busy, false},
	{ErrProtocol, Protocol, false},
	{ErrUnreachable, Unreachable, false},
}

// TroubleOf gives the word for an agent's error; NoTrouble for nil.
func TroubleOf(err error) Trouble {
	if err == nil {
		return NoTrouble
	}
	for _, t := range troubles {
		if errors.Is(err, t.err) {
			return t.trouble
		}
	}
	return Other
}

// Lasting reports whether asking again is useless until an operator has changed something.
func Lasting(err error) bool {
	for _, t := range troubles {
		if errors.Is(err, t.err) {
			return t.lasting
		}
	}
	return false
}
