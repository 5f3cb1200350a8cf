package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

var errSilent = errors.New("the daemon fell silent")

// The three ways in which an answer can be missing: the request never went out, it went
// out but changes nothing, it went out and may have changed something.

func unreachable(ctx context.Context, err error) *Error {
	e := &Error{Code: ErrUnreachable, cause: reason(ctx, err)}
	if told := (*Error)(nil); errors.As(err, &told) { // the dialer knows more
		e.Message, e.Hint = told.Message, told.Hint
		return e
	}
	e.Message = fmt.Sprintf("no daemon is reached: %v", e.cause)
	return e
}

func noAnswer(ctx context.Context, err error) *Error {
	e := &Error{Code: ErrUnreachable, cause: reason(ctx, err)}
	if ctx.Err() != nil {
		e.Code = ErrTimeout
	}
	e.Message = fmt.Sprintf("the daemon did not answer: %v", e.cause)
	return e
}

func unknownOutcome(ctx context.Context, err error) *Error {
	e := &Error{Code: ErrUnknownOutcome, cause: reason(ctx, err)}
	e.Message = fmt.Sprintf("the outcome is not known: %v", e.cause)
	e.Hint = "the operation may go on by itself: `hamgr status` shows it"
	return e
}

// reason is why a request ended without an answer, without net/http's talk around it.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
