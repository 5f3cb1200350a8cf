package redfish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/stmcginnis/gofish"
)

const (
	// shortestPause and longestPause bound the wait before a busy BMC is asked again,
	// where it does not say when.
	shortestPause = 200 * time.Millisecond
	longestPause  = 2 * time.Second
	// readPatience is how long a busy BMC is waited for in a read without deadline.
	readPatience = 10 * time.Second
	// commandPatience is the same for a command. It is short whatever the deadline is,
	// because the caller wants to think again before the command goes out late.
	commandPatience = 2 * time.Second
	// loginLimit bounds a login that nobody waits for any more.
	loginLimit = 15 * time.Second
)

// login is one session login. It runs apart from the call that needs it: if that
// call ends while the BMC is already making the session, the session's name still
// arrives, and Close can end it. Otherwise each cancelled call would eat a slot.
type login struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when client and err are set
	client *gofish.APIClient
	err    error
}

func (a *agent) config() gofish.ClientConfig {
	return gofish.ClientConfig{
		Endpoint:         a.base.endpoint(),
		Username:         a.opts.Username,
		Password:         a.opts.Password.Reveal(),
		BasicAuth:        a.opts.Auth == AuthBasic,
		HTTPClient:       a.http, // never gofish's own, see tlsConfig
		ReuseConnections: true,
	}
}

// connect gives the client, making it at first use. Its own context is that of the
// first call: use it through WithContext only.
func (a *agent) connect(ctx context.Context) (*gofish.APIClient, error) {
	switch {
	case a.closed:
		return nil, ErrClosed
	case a.client != nil:
		return a.client, nil
	case a.opts.Auth == AuthBasic:
		client, err := dial(ctx, a.config())
		if err != nil {
			return nil, err
		}
		a.client = client
		return client, nil
	}
	if a.login == nil {
		a.login = startLogin(a.config())
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("logging in: %w", noAnswer(ctx.Err()))
	case <-a.login.done:
	}
	if err := a.login.err; err != nil {
		a.login = nil
		return nil, err
	}
	a.client = a.login.client
	return a.client, nil
}

func startLogin(conf gofish.ClientConfig) *login {
	ctx, cancel := context.WithTimeout(context.Background(), loginLimit)
	l := &login{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(l.done)
		l.client, l.err = dial(ctx, conf)
	}()
	return l
}

// dial reads the service root and, for a session, logs in.
func dial(ctx context.Context, conf gofish.ClientConfig) (*gofish.APIClient, error) {
	client, err := gofish.ConnectContext(ctx, conf)
	if err != nil {
		return nil, loginError(err)
	}
	if client.Service.RedfishVersion == "" {
		return nil, fmt.Errorf("%w: the service root names no RedfishVersion", ErrNotRedfish)
	}
	if conf.BasicAuth {
		return client, nil
	}
	if s, err := client.GetSession(); err == nil && s.Token == "" {
		return nil, fmt.Errorf("%w: logged in, but got no X-Auth-Token", ErrNotRedfish)
	}
	return client, nil
}

// loginError reads a refusal as the login's: BMCs answer 400 or 403 to wrong credentials
// too, and 503 when the slots are taken. A service root that is missing is no Redfish.
func loginError(err error) error {
	err = classify(err)
	var status *statusError
	switch {
	case !errors.As(err, &status):
		return fmt.Errorf("connecting: %w", err)
	case status.method == http.MethodPost:
		status.login = true
	case status.status == http.StatusNotFound:
		return fmt.Errorf("%w: no service root: %w", ErrNotRedfish, err)
	}
	return err
}

// do sends one request, again after a pause while the BMC is busy, and once more with a
// new session if the old one died (timeout, BMC restart: a 401 means that nothing was done).
func (a *agent) do(ctx context.Context, patience time.Duration, send func(*gofish.APIClient) (*http.Response, error)) (*http.Response, error) {
	giveUp := time.Now().Add(patience)
	pause, renewed := shortestPause, false
	for {
		client, err := a.connect(ctx)
		if err == nil {
			var resp *http.Response
			resp, err = send(client.WithContext(ctx))
			if err == nil {
				return resp, nil
			}
			err = classify(err)
			if errors.Is(err, ErrCredentials) && a.login != nil && !renewed {
				renewed = true
				a.client, a.login = nil, nil
				continue
			}
		}
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrSessionLimit) {
			return nil, err
		}
		wait := pause
		var status *statusError
		if errors.As(err, &status) && status.retryAfter > 0 {
			wait = status.retryAfter
		}
		if time.Now().Add(wait).After(giveUp) {
			return nil, fmt.Errorf("%w (it wants %v)", err, wait)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(wait):
		}
		pause = min(2*pause, longestPause)
	}
}

// get reads a document.
func (a *agent) get(ctx context.Context, uri string) (body []byte, etag string, err error) {
	patience := readPatience
	if end, ok := ctx.Deadline(); ok {
		patience = time.Until(end)
	}
	resp, err := a.do(ctx, patience, func(c *gofish.APIClient) (*http.Response, error) { return c.Get(uri) })
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body) // complete and bounded, see network
	return body, resp.Header.Get("ETag"), err
}

// post sends a command that may be repeated.
func (a *agent) post(ctx context.Context, uri string, payload any, headers map[string]string) error {
	ctx = context.WithValue(ctx, repeatable{}, true)
	resp, err := a.do(ctx, commandPatience, func(c *gofish.APIClient) (*http.Response, error) {
		return c.PostWithHeaders(uri, payload, headers)
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Close ends the session, if there is one, and every connection.
func (a *agent) Close(ctx context.Context) error {
	if a.closed {
		return nil
	}
	a.closed = true
	err := a.logout(ctx)
	if err != nil {
		err = a.fail(ctx, "closing", err)
	}
	return errors.Join(err, a.network.close())
}

// logout waits for a login under way and ends its session. gofish's Logout is not used:
// it swallows errors and has no deadline.
func (a *agent) logout(ctx context.Context) error {
	l := a.login
	if l == nil {
		return nil
	}
	defer func() { l.cancel(); <-l.done }()
	select {
	case <-l.done:
	case <-ctx.Done():
		return fmt.Errorf("a login is still under way, its session may stay at the BMC: %w", ctx.Err())
	}
	if l.err != nil {
		return nil // no session was made
	}
	s, err := l.client.GetSession()
	if err != nil {
		return errors.New("the BMC did not name the session, it stays there until it times out")
	}
	uri, err := a.base.reference(s.ID)
	if err != nil {
		return fmt.Errorf("the session's name: %w", err)
	}
	_, err = l.client.WithContext(ctx).Delete(uri)
	err = classify(err)
	var status *statusError
	if errors.As(err, &status) && (status.status == http.StatusUnauthorized || status.status == http.StatusNotFound) {
		return nil // it is gone already
	}
	return err
}
