package redfishsim

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Where is a place of a BMC that a fault can be set at.
type Where int

// The places. A fault at one of them goes before one at Anywhere.
const (
	Anywhere Where = iota
	Nowhere        // a path that does not exist
	AtRoot
	AtSessions
	AtSystems
	AtSystem // or a chassis
	AtActionInfo
	AtReset
	AtTask
	AtAccounts // the account service and all below it
)

// Fault serves a request wrongly; next serves it rightly.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Answer gives a status with a message identifier, and does nothing.
func Answer(status int, messageID string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, status, messageID) }
}

// RetryAfter gives 503 with this header (text as it is to be sent).
func RetryAfter(after string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", after)
		refuse(w, http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable")
	}
}

// HTML gives 200 with a page, as a web server whose Redfish has not started yet.
func HTML() Fault {
	return Document("text/html", "<!DOCTYPE html><html><title>Please wait</title>PowerState: Off</html>")
}

// Document gives 200 with any text.
func Document(contentType, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, body)
	}
}

// Redirect sends the client to another URL, with 302, 307 or the like.
func Redirect(status int, to string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}
}

// StallHeader never answers.
func StallHeader() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // net/http would answer 200 to a handler that just returns
	}
}

// StallUntil answers rightly once thawed is closed, whether or not the client still waits.
func StallUntil(thawed <-chan struct{}) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-thawed:
			next.ServeHTTP(w, r)
		case <-r.Context().Value(http.ServerContextKey).(*http.Server).BaseContext(nil).Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// StallBody sends the header and some of the body, a byte in a while, without end.
func StallBody(between time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, `{"PowerState":"Off"`)
		for wait(r.Context(), between) == nil {
			fmt.Fprint(w, " ")
			http.NewResponseController(w).Flush()
		}
	}
}

// Delay answers rightly, but late.
func Delay(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if wait(r.Context(), d) != nil {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	}
}

// Huge sends a JSON object of so many bytes.
func Huge(size int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		chunk := strings.Repeat(" ", 1<<16)
		fmt.Fprint(w, "{")
		for sent := 0; sent < size; sent += len(chunk) {
			if _, err := fmt.Fprint(w, chunk); err != nil {
				return
			}
		}
		fmt.Fprint(w, "}")
	}
}

// Break resets the connection in the middle of a body.
func Break() Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, `{"PowerState":"Off",`)
		http.NewResponseController(w).Flush()
		cut(w)
	}
}

// HangUp resets the connection instead of answering.
func HangUp() Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cut(w) }
}

// cut ends the connection with a reset.
func cut(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // gone already
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // below TLS
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// Obeying carries the request out first, and then fails like f.
func Obeying(f Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(discard{}, r)
		f(w, r, next)
	}
}

// discard is a ResponseWriter for an answer that nobody gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// Times fails like f so many times, and then serves rightly.
func Times(n int, f Fault) Fault {
	var served atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if served.Add(1) <= int64(n) {
			f(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// faultyListener hands no connection on while the BMC is mute; it holds them open.
type faultyListener struct {
	net.Listener
	bmc *BMC
}

func (l *faultyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.bmc.behaviour().Mute {
			return c, err
		}
		if !l.bmc.begin() {
			c.Close()
			continue
		}
		go func() {
			defer l.bmc.working.Done()
			<-l.bmc.life.Done()
			c.Close()
		}()
	}
}
