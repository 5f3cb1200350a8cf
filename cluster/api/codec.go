package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// decodeStrict reads exactly one JSON value. A key that is not known is refused: whoever
// sent it wanted something that would be left undone.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: the request's body: %v", ErrInvalid, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: the request's body goes on after its end", ErrInvalid)
	}
	return nil
}

// readAll takes a whole body in, so that reading it has a deadline of its own.
func readAll(body io.ReadCloser) (io.ReadCloser, error) {
	data, err := io.ReadAll(body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, fmt.Errorf("%w: the request's body is over the limit of %d bytes", ErrInvalid, tooLarge.Limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the request's body: %v", ErrInvalid, err)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return writeBody(w, http.StatusOK, "application/json", append(body, '\n'))
}

// writeError answers with err. ErrUnreachable means here that this daemon could not reach
// another one; to the asker that is a missing coordinator, since this daemon did answer.
func writeError(w http.ResponseWriter, err error) {
	e := wireError(err)
	writeBody(w, e.Code.httpStatus(), "application/json", EncodeError(e))
}

func wireError(err error) *Error {
	e := AsError(err)
	if e.Code == ErrUnreachable {
		e.Code = ErrNoCoordinator
	}
	e.cause = nil
	return e
}

// writeBody sends a whole answer. It gives no error: the reader that went away is the only
// one who could be told.
func writeBody(w http.ResponseWriter, status int, kind string, body []byte) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
	return nil
}
