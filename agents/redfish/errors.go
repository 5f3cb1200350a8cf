package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hamgr/hamgr/agents"
)

// kind is an error with words of its own, which is one of the kinds that all agents share.
type kind struct {
	text string
	of   error
}

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.of }

func newKind(text string, of error) error { return &kind{text, of} }

// What can be wrong with a device, told apart so that an operator knows where to
// look. All of them come wrapped.
var (
	// ErrUnreachable: no TCP connection, or it broke, or nothing was said in time.
	ErrUnreachable = newKind("unreachable", agents.ErrUnreachable)
	// ErrCertificate: the BMC's certificate is not the pinned one, or not valid.
	ErrCertificate = newKind("certificate not accepted", agents.ErrUntrusted)
	// ErrNotRedfish: something answers, but not as Redfish prescribes.
	ErrNotRedfish = newKind("not a Redfish answer", agents.ErrProtocol)
	// ErrCredentials: the user name or password is wrong.
	ErrCredentials = newKind("user name or password refused", agents.ErrCredentials)
	// ErrPasswordChange: the BMC wants a new password first.
	ErrPasswordChange = newKind("the BMC wants its password changed first", agents.ErrCredentials)
	// ErrPrivilege: the account is valid, but may not do this.
	ErrPrivilege = newKind("the account lacks the privilege (needs role Operator)", agents.ErrPrivilege)
	// ErrSessionLimit: all session slots of the BMC are taken.
	ErrSessionLimit = newKind("no free session at the BMC", agents.ErrBusy)
	// ErrBusy: the BMC asks to come back later.
	ErrBusy = newKind("the BMC is busy", agents.ErrBusy)
	// ErrConflict: the state of the machine or of the BMC forbids it just now (a machine that
	// is off already, one that starts, an update). The state read tells which.
	ErrConflict = newKind("not possible in the present state", agents.ErrBusy)
	// ErrRefused: any other refusal of a request.
	ErrRefused = errors.New("refused")
	// ErrSystem: which system is meant is not clear, or it is not a host.
	ErrSystem = newKind("system not identified", agents.ErrPlug)
	// ErrNoForceOff: the BMC does not offer ForceOff. A cycle, a power button or a
	// graceful shutdown cannot stand in for it: such a device cannot fence.
	ErrNoForceOff = newKind("the BMC offers no ForceOff", agents.ErrUnfit)
	// ErrNoOn: the BMC offers neither On nor ForceOn.
	ErrNoOn = newKind("the BMC offers no On", agents.ErrUnfit)
	// ErrClosed: the handle was closed before.
	ErrClosed = errors.New("closed")
)

// statusError is an answer with a status other than 2xx. Of its body only the
// message identifiers are kept: a BMC may quote the request, with the password.
type statusError struct {
	method     string
	path       string
	status     int
	messageIDs []string
	retryAfter time.Duration // 0 = not given
	login      bool          // the refusal of a login, which has meanings of its own
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%v: %s %s: HTTP %d", e.Unwrap(), e.method, e.path, e.status)
	if len(e.messageIDs) > 0 {
		s += " " + strings.Join(e.messageIDs, " ")
	}
	return s
}

// Unwrap gives the sentinel that the answer stands for.
func (e *statusError) Unwrap() error {
	switch {
	case e.says("SessionLimitExceeded", "CreateLimitReachedForResource"):
		return ErrSessionLimit
	case e.says("PasswordChangeRequired"):
		return ErrPasswordChange
	case e.login && e.status == http.StatusServiceUnavailable:
		return ErrSessionLimit
	case e.status == http.StatusUnauthorized, e.login && (e.status == http.StatusBadRequest || e.status == http.StatusForbidden):
		return ErrCredentials
	case e.status == http.StatusForbidden:
		return ErrPrivilege
	case e.status == http.StatusServiceUnavailable || e.status == http.StatusTooManyRequests:
		return ErrBusy
	case e.status == http.StatusConflict:
		return ErrConflict
	case e.status < 400:
		return ErrNotRedfish
	default:
		return ErrRefused
	}
}

func (e *statusError) says(ids ...string) bool {
	for _, m := range e.messageIDs {
		for _, id := range ids {
			if m == id || strings.HasSuffix(m, "."+id) {
				return true
			}
		}
	}
	return false
}

func newStatusError(resp *http.Response, body []byte) *statusError {
	r := resp.Request
	e := &statusError{method: r.Method, path: agents.Clip(r.URL.Path, 120), status: resp.StatusCode, messageIDs: messageIDs(body)}
	if s := resp.Header.Get("Retry-After"); s != "" {
		// The form with a date is ignored: a BMC's clock may be years off.
		if n, err := strconv.Atoi(s); err == nil && n >= 0 && n < 3600 {
			e.retryAfter = max(time.Duration(n)*time.Second, shortestPause)
		}
	}
	return e
}

// messageIDs picks the identifiers out of an error body (DSP0266, "Error responses").
func messageIDs(body []byte) []string {
	type info struct {
		MessageID string `json:"MessageId"`
	}
	var doc struct {
		Error struct {
			Code string `json:"code"`
			Info []info `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return nil
	}
	var ids []string
	for _, m := range append([]info{{doc.Error.Code}}, doc.Error.Info...) {
		if isMessageID(m.MessageID) && len(ids) < 4 && !slices.Contains(ids, m.MessageID) {
			ids = append(ids, m.MessageID)
		}
	}
	return ids
}

func isMessageID(s string) bool {
	return s != "" && len(s) <= 80 && strings.Count(s, ".") >= 2 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '_' && r != '-'
	})
}

// classify turns what net/http reports into one of the sentinels, in words that do
// not depend on where in the library it broke.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var wrapped *url.Error
	sent := errors.As(err, &wrapped)
	if sent {
		err = wrapped.Err
	}
	var (
		status  *statusError
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		netErr  net.Error
	)
	switch {
	case errors.As(err, &status):
		return err
	case errors.Is(err, ErrCertificate), errors.Is(err, ErrNotRedfish), errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return noAnswer(err)
	case !sent: // gofish itself does not know what to do with a document
		return fmt.Errorf("%w: %w", ErrNotRedfish, err)
	case errors.As(err, &cert):
		return fmt.Errorf("%w: %w%s", ErrCertificate, err, cure(cert))
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	case errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: no TLS as we speak it: %w", ErrNotRedfish, err)
	case errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Errorf("%w: no answer: %w", ErrUnreachable, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
}

// noAnswer is the end of a context before the BMC said anything. A deadline tells something of the
// BMC, a cancel nothing.
func noAnswer(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("no answer: %w", err)
}

// word makes a device's text fit for a log line: printable, short, never empty.
func word(s string) string {
	if s == "" {
		return "<empty>"
	}
	return agents.Clip(s, 40)
}
