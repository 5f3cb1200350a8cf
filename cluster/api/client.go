package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	maxStatus   = 16 << 20
	maxErrBody  = 64 << 10
	clientIdle  = 30 * time.Second // shorter than the server's
	dialTimeout = 10 * time.Second // a dial goes on for the next request when its own was given up
)

// Client asks one daemon. It is safe for concurrent use; Close it to let its idle
// connections go.
type Client struct {
	http      *http.Client
	transport *http.Transport
}

// NewClient makes a client that reaches its daemon by dial: DialUnix for the operator's
// face, a dial over link for the node's.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return dial(ctx)
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        clientIdle,
		MaxResponseHeaderBytes: maxHeader,
	}
	return &Client{
		transport: t,
		http: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes the idle connections and abandons dials. Requests that run are ended by
// their contexts.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Status asks for Backend.Status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.get(ctx, pathStatus, &s)
}

// FenceStatus asks for Backend.FenceStatus.
func (c *Client) FenceStatus(ctx context.Context, node string) (FenceStatus, error) {
	var s FenceStatus
	return s, c.get(ctx, pathFenceStatus+"?node="+url.QueryEscape(node), &s)
}

// FenceTest asks for Backend.FenceTest.
func (c *Client) FenceTest(ctx context.Context, node string) (FenceTest, error) {
	var t FenceTest
	return t, c.get(ctx, pathFenceTest+"?node="+url.QueryEscape(node), &t)
}

// FenceHistory asks for Backend.FenceHistory.
func (c *Client) FenceHistory(ctx context.Context, node string) (FenceHistory, error) {
	var h FenceHistory
	return h, c.get(ctx, pathHistory+"?node="+url.QueryEscape(node), &h)
}

// Change asks for Backend.Change. Once the request is on its way, a broken connection is
// ErrUnknownOutcome; a dry run changes nothing whatever becomes of it.
func (c *Client) Change(ctx context.Context, req ChangeRequest) (ChangeResult, error) {
	if err := req.Validate(); err != nil {
		return ChangeResult{}, err
	}
	var r ChangeResult
	err := c.post(ctx, pathChange, req, &r)
	if e := (*Error)(nil); req.DryRun && errors.As(err, &e) && e.Code == ErrUnknownOutcome {
		e.Code, e.Message, e.Hint = ErrTimeout, "the daemon did not answer: "+e.Message, ""
	}
	return r, err
}

// Fence asks for Backend.Fence, or on the node's face for NodeBackend.FenceForwarded. Once
// the request is on its way, a broken or silent connection and the end of ctx are
// ErrUnknownOutcome: the operation may go on. observe, which may be nil, is called from
// this goroutine.
func (c *Client) Fence(ctx context.Context, req FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
	if err := req.Validate(); err != nil {
		return FenceResult{}, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return FenceResult{}, fmt.Errorf("encode the request: %w", err)
	}
	if observe == nil {
		observe = func(FenceEvent) {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()

	resp, err := c.do(ctx, http.MethodPost, pathFence, body)
	if err != nil {
		return FenceResult{}, err
	}
	defer resp.Body.Close()
	result, err := readFence(resp.Body, func() { watchdog.Reset(silence) }, observe)
	if told := (*Error)(nil); err != nil && !errors.As(err, &told) {
		err = unknownOutcome(ctx, err)
	}
	return result, err
}

// Call asks for NodeBackend.Call. An error that wraps ErrUnreachable means that the call
// was never sent; ErrUnknownOutcome, that it may have been carried out.
func (c *Client) Call(ctx context.Context, verb string, body []byte) ([]byte, error) {
	resp, err := c.do(ctx, http.MethodPost, pathCall+url.PathEscape(verb), body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := readLimited(resp.Body, MaxCall)
	if err != nil {
		return nil, unknownOutcome(ctx, err)
	}
	return answer, nil
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := readLimited(resp.Body, maxStatus)
	if err != nil {
		return noAnswer(ctx, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &Error{Code: ErrInternal, Message: "the daemon's answer is not understood: " + err.Error(), cause: err}
	}
	return nil
}

// do sends one request and gives the answer to it if that is a success. Every other end is
// an error with its code.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var sent atomic.Bool // a connection was had: the request may have gone out
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	req, err := http.NewRequestWithContext(traced, method, "http://hamgr"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set(timeoutHeader, strconv.FormatInt(timeLeft(time.Until(deadline)), 10))
	}
	resp, err := c.http.Do(req)
	switch {
	case err != nil && !sent.Load():
		return nil, unreachable(ctx, err)
	case err != nil && method == http.MethodGet:
		return nil, noAnswer(ctx, err)
	case err != nil:
		return nil, unknownOutcome(ctx, err)
	case resp.StatusCode != http.StatusOK:
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// timeLeft is how long the daemon is told to take, in milliseconds: somewhat less than there
// is, so that its own word on the matter arrives in time.
func timeLeft(d time.Duration) int64 {
	return max(0, (d - min(d/10, time.Second)).Milliseconds())
}

// readError gives the error that an answer carries.
func readError(resp *http.Response) error {
	body, err := readLimited(resp.Body, maxErrBody)
	if err == nil {
		if e := decodeError(body); e != nil {
			return e
		}
	}
	return &Error{Code: ErrInternal, Message: fmt.Sprintf("the daemon answered %q without saying why", resp.Status), cause: err}
}

// decodeError reads what EncodeError wrote; nil if it is something else.
func decodeError(body []byte) *Error {
	var b errorBody
	if json.Unmarshal(body, &b) != nil || b.Error == nil || b.Error.Code == "" {
		return nil
	}
	return b.Error
}

func readLimited(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the answer is over the limit of %d bytes", limit)
	}
	return body, err
}
