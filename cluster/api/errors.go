package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Code says what kind of error a request met. It is an error itself, and the sentinel of
// its kind: errors.Is(err, api.ErrNoQuorum) holds on both sides of the wire.
type Code string

// The codes. They are part of the contract with operators' tools.
const (
	// ErrNoCoordinator: no coordinator is known or reachable; nothing was done.
	ErrNoCoordinator Code = "no_coordinator"
	// ErrNoQuorum: a majority is missing; nothing was done.
	ErrNoQuorum Code = "no_quorum"
	// ErrUnsafe: a safety rule forbids it; nothing was done.
	ErrUnsafe Code = "unsafe"
	// ErrNotFound: no such node, group or verb.
	ErrNotFound Code = "not_found"
	// ErrTimeout: no answer in time, to a request that changes nothing.
	ErrTimeout Code = "timeout"
	// ErrUnknownOutcome: the request may or may not take effect; it was neither done nor
	// refused as far as anyone can tell.
	ErrUnknownOutcome Code = "unknown_outcome"
	// ErrInvalid: the request itself is wrong.
	ErrInvalid Code = "invalid"
	// ErrFailed: it was tried, and it failed.
	ErrFailed Code = "failed"
	// ErrInternal: the daemon is at fault.
	ErrInternal Code = "internal"
	// ErrUnreachable: no daemon answers. Only clients make it.
	ErrUnreachable Code = "unreachable"
)

// Error gives the code in words.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "_", " ") }

// httpStatus is for those who look at the wire; the client goes by the code.
func (c Code) httpStatus() int {
	switch c {
	case ErrNoCoordinator, ErrNoQuorum:
		return http.StatusServiceUnavailable
	case ErrUnsafe:
		return http.StatusConflict
	case ErrNotFound:
		return http.StatusNotFound
	case ErrTimeout, ErrUnknownOutcome:
		return http.StatusGatewayTimeout
	case ErrInvalid:
		return http.StatusBadRequest
	case ErrFailed:
		return http.StatusBadGateway
	default:
		return http.StatusInternalServerError
	}
}

// Error is an error as it crosses the wire and as an operator reads it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes errors.Is work for the code and for a local cause.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.cause}
}

// AsError gives err the form that crosses the wire. Its code is that of the outermost
// *Error or Code in err, its hint that of the *Error.
func AsError(err error) *Error {
	e := &Error{Code: CodeOf(err), Message: err.Error(), cause: err}
	if inner := (*Error)(nil); errors.As(err, &inner) {
		e.Hint = inner.Hint
	}
	return e
}

// CodeOf finds the code of an error; ErrInternal if it has none.
func CodeOf(err error) Code {
	var code Code
	switch {
	case errors.As(err, &code):
		return code
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ErrTimeout
	default:
		return ErrInternal
	}
}

// errorBody is the body of every answer that is not a success.
type errorBody struct {
	Schema int    `json:"schema"`
	Error  *Error `json:"error"`
}

// EncodeError is the JSON object that stands for err, on the wire and on the standard
// output of commands that were asked for JSON.
func EncodeError(err error) []byte {
	b, _ := json.Marshal(errorBody{Schema: Schema, Error: AsError(err)}) // strings cannot fail
	return append(b, '\n')
}
