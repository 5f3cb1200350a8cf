// Package redfishsim is a Redfish BMC in software: the peer of the redfish agent's tests
// and of hamgr demo. It serves TLS from a CA of its own, basic authentication and
// sessions, and one or more systems whose power it really switches (see Power). It can
// misbehave in every way that BMCs of the field are known for (see Mode and Fault).
//
// It is written from the standard (DSP0266, DSP0268) and from reports, so it shows
// that the agent does what we read there, not what a certain firmware does.
package redfishsim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Power is the machine behind a BMC. Its methods are called by several goroutines.
type Power interface {
	On(ctx context.Context) error
	// Off returns when the machine has stopped; until then State stays true.
	Off(ctx context.Context) error
	State() bool // true = on
}

// System is one member of the BMC's Systems.
type System struct {
	ID string // default "1"
	// Chassis makes it a member of Chassis instead, whose power is that of all that is in it.
	Chassis bool
	UUID    string // left out of the document if empty
	Serial  string
	Power   Power // default: a Switch that is on
	// NotHost leaves out the reset action, as accelerator trays do.
	NotHost bool
	// Target is the URI of the reset action; default: the usual one.
	Target string
	// Allowable is ResetType@Redfish.AllowableValues; nil leaves the property out.
	Allowable []string
	// ActionInfo are the values of the ActionInfo document; nil leaves the document out.
	ActionInfo []string
}

// Config says what a BMC is.
type Config struct {
	Address  string // listens here; default "127.0.0.1:0"
	Username string
	Password string
	UUID     string // of the one system, where Systems is empty
	Serial   string
	Power    Power
	Systems  []System
	// Documents is a folder with the documents of a machine, one file each, to be served
	// instead of our own: all power states in them follow one Power, the rest is theirs. A
	// document's URI is its @odata.id; Systems must be empty.
	Documents string
	Plain     bool // http without TLS
	OldTLS    bool // TLS 1.2 at most
	Mode      Mode
}

// Request is one request as the BMC saw it, without credentials.
type Request struct {
	At     time.Time
	Method string
	Path   string
	Auth   string // "", "basic" or "token"
	Body   string // of requests for a reset only
	Status int    // 0 = no answer was sent
}

// BMC is a running simulator. All methods are safe for concurrent use.
type BMC struct {
	config  Config
	certs   *authority
	address string

	life    context.Context // of everything that the BMC does
	kill    context.CancelFunc
	working sync.WaitGroup // handlers and power transitions

	mu       sync.Mutex
	server   *http.Server
	serving  chan struct{} // closed when the server's goroutine ended
	stopped  bool
	mode     Mode
	faults   map[Where]Fault
	systems  []*system
	static   map[string]map[string]any // URI -> further documents
	silent   *silence                  // not nil while the BMC drops what comes
	sessions map[string]*session       // by token
	opened   int                       // sessions ever opened
	requests []Request
	tasks    map[string]int // URI -> number of reads so far
}

// Start makes a BMC and lets it serve.
func Start(c Config) (*BMC, error) {
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if len(c.Systems) == 0 && c.Documents == "" {
		c.Systems = []System{{UUID: c.UUID, Serial: c.Serial, Power: c.Power, Allowable: []string{"On", "ForceOff", "ForceOn"}}}
	}
	b := &BMC{
		config: c, mode: c.Mode, faults: map[Where]Fault{},
		sessions: map[string]*session{}, tasks: map[string]int{},
	}
	for _, s := range c.Systems {
		b.systems = append(b.systems, newSystem(s))
	}
	var err error
	if c.Documents != "" {
		if b.systems, b.static, err = readDocuments(c.Documents, c.Power); err != nil {
			return nil, fmt.Errorf("redfishsim: %w", err)
		}
	}
	if b.certs, err = newAuthority(c.Address); err != nil {
		return nil, fmt.Errorf("redfishsim: making certificates: %w", err)
	}
	b.life, b.kill = context.WithCancel(context.Background())
	b.address = c.Address
	if err := b.Up(); err != nil {
		b.kill()
		return nil, err
	}
	return b, nil
}

// Up lets a BMC that is down serve again, at the same address.
func (b *BMC) Up() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.server != nil {
		return errors.New("redfishsim: stopped, or up already")
	}
	b.silent.end()
	b.silent = nil
	l, err := net.Listen("tcp", b.address)
	if err != nil {
		return fmt.Errorf("redfishsim: %w", err)
	}
	if b.serving == nil { // the first time: from now on the port is fixed
		b.address = l.Addr().String()
	}
	l = &faultyListener{Listener: l, bmc: b}
	if !b.config.Plain {
		conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: b.certs.current}
		if b.config.OldTLS {
			conf.MaxVersion = tls.VersionTLS12
		}
		l = tls.NewListener(l, conf)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(b.serve),
		BaseContext:       func(net.Listener) context.Context { return b.life },
		ErrorLog:          log.New(io.Discard, "", 0), // broken handshakes are what it is for
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       time.Minute,
	}
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		server.Serve(l) // ends with ErrServerClosed, by Down
	}()
	b.server, b.serving = server, serving
	return nil
}

// Down makes the BMC unreachable, as without power: connections break, new ones are
// refused, sessions are forgotten. The machine's power is left as it is.
func (b *BMC) Down() {
	b.mu.Lock()
	server, serving := b.server, b.serving
	b.server = nil
	b.silent.end()
	b.silent = nil
	clear(b.sessions)
	b.mu.Unlock()
	if server != nil {
		server.Close()
		<-serving
	}
}

// Silence lets the BMC's address drop what comes, as behind a firewall or a dead switch: a
// connection is neither taken nor refused. Down and Up end it.
func (b *BMC) Silence() error {
	b.Down()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return errors.New("redfishsim: stopped")
	}
	var err error
	b.silent, err = beSilent(b.address)
	return err
}

// Reboot restarts the BMC, not the machine: it is unreachable for a phase, then busy, then a
// web page without Redfish, each for as long, and then well again with no session left.
// It returns at the end of that, or when ctx ends.
func (b *BMC) Reboot(ctx context.Context, phase time.Duration) error {
	b.Down()
	defer b.SetFault(Anywhere, nil)
	if err := wait(ctx, phase); err != nil {
		return err
	}
	b.SetFault(Anywhere, Answer(http.StatusServiceUnavailable, "Base.1.8.ServiceShuttingDown"))
	if err := b.Up(); err != nil {
		return err
	}
	if err := wait(ctx, phase); err != nil {
		return err
	}
	b.SetFault(Anywhere, HTML())
	return wait(ctx, phase)
}

// Stop ends the BMC and waits for all it does. The machine's power is left as it is.
func (b *BMC) Stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.kill()
	b.Down()
	b.working.Wait()
}

// Addr is the address it listens on, host:port.
func (b *BMC) Addr() string { return b.address }

// URL is the address for the agent's key address.
func (b *BMC) URL() string {
	if b.config.Plain {
		return "http://" + b.address
	}
	return "https://" + b.address
}

// SystemURI is the path of the system with this ID.
func (b *BMC) SystemURI(id string) string { return systemsPath + "/" + id }

// SetMode changes how the BMC behaves from now on.
func (b *BMC) SetMode(change func(*Mode)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.mode)
}

// SetFault lets requests for a place run into f; nil ends it. One fault a place.
func (b *BMC) SetFault(where Where, f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == nil {
		delete(b.faults, where)
		return
	}
	b.faults[where] = f
}

// Requests gives all requests so far, oldest first.
func (b *BMC) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// Resets gives the ResetType bodies of all reset requests so far, oldest first.
func (b *BMC) Resets() []string {
	var bodies []string
	for _, r := range b.Requests() {
		if r.Method == http.MethodPost && r.Body != "" {
			bodies = append(bodies, r.Body)
		}
	}
	return bodies
}

// CertPin is the SHA-256 of the certificate shown now, in hex.
func (b *BMC) CertPin() string { return b.certs.pin() }

// CAPEM is the certificate of the BMC's CA.
func (b *BMC) CAPEM() []byte { return b.certs.caPEM }

// SetCertificate changes the certificate that new connections see.
func (b *BMC) SetCertificate(c Certificate) error { return b.certs.use(c) }

// begin counts work that Stop waits for. It is refused after Stop.
func (b *BMC) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.working.Add(1)
	return true
}

func (b *BMC) behaviour() Mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}
