package snmp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

var (
	errClosed = errors.New("closed")
	// errSilent: an attempt got no answer in its time.
	errSilent = errors.New("no answer")
	// errRefused: the network refuses to carry the request, most often because nobody is there.
	errRefused = errors.New("the network refuses")
)

// reportError is a Report: the device could not read the request, and says why. What is
// unauthenticated may be forged; it is told to the operator, and proves nothing.
type reportError struct{ oid string }

// Where Reports come from: usmStats (RFC 3414), snmpMPDStats (RFC 3412), snmpTargetMIB (RFC 3413).
const (
	unsupportedLevel = "1.3.6.1.6.3.15.1.1.1.0"
	notInTimeWindow  = "1.3.6.1.6.3.15.1.1.2.0"
	unknownUser      = "1.3.6.1.6.3.15.1.1.3.0"
	unknownEngine    = "1.3.6.1.6.3.15.1.1.4.0"
	wrongDigest      = "1.3.6.1.6.3.15.1.1.5.0"
	decryptionError  = "1.3.6.1.6.3.15.1.1.6.0"
)

var reports = map[string]struct {
	trouble error
	words   string
}{
	unsupportedLevel:         {agents.ErrCredentials, "the user has no key for the wanted security level: auth or priv is not set up for it at the device"},
	notInTimeWindow:          {agents.ErrUntrusted, "the message is not in the device's time window, although its clock was asked for: the device's SNMP engine time is broken"},
	unknownUser:              {agents.ErrCredentials, "the device does not know the user name"},
	unknownEngine:            {agents.ErrProtocol, "the device does not know the engine ID that it announced"},
	wrongDigest:              {agents.ErrCredentials, "the authentication password or protocol is wrong"},
	decryptionError:          {agents.ErrCredentials, "the privacy password or protocol is wrong"},
	"1.3.6.1.6.3.11.2.1.1.0": {agents.ErrUnfit, "the device does not have the user-based security model"},
	"1.3.6.1.6.3.11.2.1.2.0": {agents.ErrProtocol, "the device takes the message for invalid"},
	"1.3.6.1.6.3.11.2.1.3.0": {agents.ErrUnfit, "the device does not handle this kind of request"},
	"1.3.6.1.6.3.12.1.4.0":   {agents.ErrUnfit, "the context is not available"},
	"1.3.6.1.6.3.12.1.5.0":   {agents.ErrUnfit, "the device does not know the context"},
}

func (e *reportError) Error() string {
	if r, ok := reports[e.oid]; ok {
		return r.trouble.Error() + ": " + r.words
	}
	return fmt.Sprintf("%v: the device answers with Report %s", agents.ErrProtocol, clip(e.oid))
}

func (e *reportError) Unwrap() error {
	if r, ok := reports[e.oid]; ok {
		return r.trouble
	}
	return agents.ErrProtocol
}

// is reports whether the device's report is this one.
func isReport(err error, oid string) bool {
	var r *reportError
	return errors.As(err, &r) && r.oid == oid
}

// statusError is an answer with an error status (RFC 3416, section 3).
type statusError struct {
	set    bool
	status gosnmp.SNMPError
	object string // what the index points at
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("the device answers %s (%d) for %s", statusWord(e.status), e.status, e.object)
	if t := e.Unwrap(); t != nil {
		return t.Error() + ": " + s
	}
	return s
}

// Unwrap gives the trouble that the status stands for, if it tells.
func (e *statusError) Unwrap() error {
	switch e.status {
	case gosnmp.NoAccess, gosnmp.AuthorizationError, gosnmp.NotWritable, gosnmp.ReadOnly:
		return agents.ErrPrivilege
	case gosnmp.NoSuchName:
		// Version 1 has no better word for an object that may not be written (RFC 1157,
		// section 4.1.5); that it is there was read before.
		if e.set {
			return agents.ErrPrivilege
		}
		return errNoObject
	case gosnmp.ResourceUnavailable:
		return agents.ErrBusy
	case gosnmp.BadValue, gosnmp.WrongType, gosnmp.WrongLength, gosnmp.WrongEncoding, gosnmp.WrongValue,
		gosnmp.NoCreation, gosnmp.InconsistentName:
		return agents.ErrUnfit
	case gosnmp.TooBig:
		return agents.ErrProtocol
	}
	return nil // genErr, commitFailed and the like say nothing: some devices answer them and obey
}

func statusWord(s gosnmp.SNMPError) string {
	if s > gosnmp.InconsistentName {
		return "an undefined error"
	}
	w := s.String()
	return strings.ToLower(w[:1]) + w[1:]
}

// errNoObject: the device has no such object, or does not show it to this account.
var errNoObject = errors.New("no such object, or not visible to this account")

// absentError is an object that the device does not have.
type absentError struct{ object string }

func (e *absentError) Error() string { return fmt.Sprintf("%s: %v", e.object, errNoObject) }
func (e *absentError) Unwrap() error { return errNoObject }

// clip makes a device's text fit for a log line: printable, short, never empty.
func clip(s string) string {
	const longest = 60
	if s == "" {
		return "<empty>"
	}
	return agents.Clip(s, longest)
}
