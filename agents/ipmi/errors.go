package ipmi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
)

// completionError is an answer with a completion code other than 00h. It is authentic.
type completionError struct {
	command types.Command
	code    types.CompletionCode
}

func (e *completionError) Error() string {
	words := strings.ToLower(types.StrCC(e.command, uint8(e.code)))
	switch e.code { // what operators meet, in words that they can use
	case types.CodeInsufficientPrivilege:
		words = "the account may not do this"
	case types.CodeNotSupported:
		words = "not possible in the present state"
	}
	return fmt.Sprintf("the BMC answers %02Xh to %s: %s", uint8(e.code), e.command.Name, words)
}

// Unwrap gives the kind of trouble (IPMI 2.0, table 5-2). A D5h or another code leaves open
// what is wrong, so that it stays to the power state to tell.
func (e *completionError) Unwrap() error {
	switch e.code {
	case types.CodeInsufficientPrivilege:
		return agents.ErrPrivilege
	case types.CodeSetSessionPrivilegeLevelLevelNotAvailable, types.CodeSetSessionPrivilegeLevelExceedsLimit:
		if e.command.ID == types.CommandSetSessionPrivilegeLevel.ID {
			return agents.ErrPrivilege
		}
	case types.CodeNodeBusy, types.CodeOutOfSpace, types.CodeProcessTimeout,
		types.CodeCannotProvideResponseFirmwareUpdate, types.CodeCannotProvideResponseBMCInitialize:
		return agents.ErrBusy
	case types.CodeSubFnDisabled, types.CodeInvalidCommand, types.CodeInvalidCommandForLUN:
		return agents.ErrUnfit
	}
	return nil
}

// lacking: the BMC does not know the command, or has nothing to tell.
func (e *completionError) lacking() bool {
	switch e.code {
	case types.CodeInvalidCommand, types.CodeInvalidCommandForLUN, types.CodeRequestedDataNotPresent,
		types.CodeCannotProvideResponse, types.CodeNotSupported, types.CodeSubFnDisabled:
		return true
	}
	return false
}

// setupError is a refusal while a session is being opened. Nothing proves that it is the
// BMC's: whoever forges it can keep us out, and no more.
type setupError struct {
	message string // what was refused
	status  types.RmcpStatusCode
}

func (e *setupError) Error() string {
	words := strings.ToLower(e.status.String())
	switch e.status {
	case types.RmcpStatusCodeNoResToCreateSess:
		words = "no free session"
	case types.RmcpStatusCodeUnauthorizedName:
		words = "no such user, or one that may not use the network"
	case types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
		words = "the account does not have this privilege level"
	}
	return fmt.Sprintf("the BMC answers status %02Xh to %s: %s", uint8(e.status), e.message, words)
}

// Unwrap gives the kind of trouble (IPMI 2.0, table 13-15).
func (e *setupError) Unwrap() error {
	switch e.status {
	case types.RmcpStatusCodeNoResToCreateSess, types.RmcpStatusCodeNoResToCreateSessAtRole:
		return agents.ErrBusy
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeInvalidNameLength:
		if e.message == nameMessage {
			return agents.ErrCredentials
		}
	case types.RmcpStatusCodeInvalidRole, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
		return agents.ErrPrivilege
	case types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg,
		types.RmcpStatusCodeNoMatchingAuthPayload, types.RmcpStatusCodeNoMatchingIntegrityPayload,
		types.RmcpStatusCodeInvalidConfidentAlg, types.RmcpStatusCodeNoCipherSuiteMatch:
		if e.message == openMessage {
			return errSuite
		}
	}
	return errMixedUp
}

var (
	// errSuite: the BMC says that it does not offer the cipher suite.
	errSuite = fmt.Errorf("%w: cipher suite not offered", agents.ErrUnfit)
	// errMixedUp: the BMC does not know what we talk of. A datagram of the handshake was lost or
	// came twice, so that both sides hold different numbers; or the BMC has restarted; or
	// somebody else said so. It may go well the next time.
	errMixedUp = fmt.Errorf("%w: the handshake went out of step", agents.ErrProtocol)
	// errPassword: the BMC signed its part with another password.
	errPassword = fmt.Errorf("%w: wrong password, or no such user", agents.ErrCredentials)
	// errBMCKey: the password was right, the session keys are not.
	errBMCKey = fmt.Errorf("%w: the BMC has another key (bmc_key)", agents.ErrCredentials)
	// errLevel: the session was not lifted to the level asked for.
	errLevel = fmt.Errorf("%w: the BMC keeps the session below the level asked for", agents.ErrPrivilege)
)

// silence is the lack of a valid answer.
type silence struct {
	refused bool  // ICMP: nothing listens at the port
	unsent  error // why the last question was not sent
	dropped int   // datagrams that were no valid answer
	last    error // why the last of them was not
	ended   error // the context's error, if that is why it was given up
}

func (e *silence) Error() string {
	s := agents.ErrUnreachable.Error() + ": no answer"
	if e.refused {
		s += ", nothing listens at the port"
	}
	if e.unsent != nil {
		s += ", " + e.unsent.Error()
	}
	if e.dropped > 0 {
		s += fmt.Sprintf(" that holds: %d datagrams dropped, the last one %v", e.dropped, e.last)
	}
	if e.ended != nil {
		s += ": " + e.ended.Error()
	}
	return s
}

// Unwrap: a cancel says nothing of the BMC, a deadline that passed in silence does.
func (e *silence) Unwrap() []error {
	switch {
	case e.ended == nil:
		return []error{agents.ErrUnreachable}
	case errors.Is(e.ended, context.Canceled):
		return []error{e.ended}
	}
	return []error{agents.ErrUnreachable, e.ended}
}

// finalError must not be tried again: a command may have gone out.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

// again reports whether another attempt within the same call may go better.
func again(err error) bool {
	if errors.As(err, new(finalError)) {
		return false
	}
	return errors.Is(err, agents.ErrUnreachable) || errors.Is(err, agents.ErrBusy) || errors.Is(err, errMixedUp)
}
