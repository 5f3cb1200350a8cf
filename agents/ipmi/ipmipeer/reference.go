package ipmipeer

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/clock"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
)

// Reference is go-ipmi's own server: cipher suites 17 and 3, refusals in RAKP as real BMCs
// make them, passwords of any bytes, and session slots that can be counted.
type Reference struct {
	Config
	BMC  *bmc.BMC
	addr string

	mu       sync.Mutex
	power    byte // current power state, as in Get Chassis Status
	calls    []string
	code     types.CompletionCode // the answer to Chassis Control
	stuck    bool
	statuses func() ([]byte, types.CompletionCode) // instead of the state, if set
	noSlot   int                                   // Open Sessions to be refused
	lowered  int                                   // Chassis Controls to be refused for want of privilege
}

// StartReference runs a server with so many session slots until the end of the test.
func StartReference(tb testing.TB, c Config, slots int, suites ...types.CipherSuiteID) *Reference {
	tb.Helper()
	c.fill()
	r := &Reference{Config: c}
	r.SetPower(agents.On)
	if c.Off {
		r.SetPower(agents.Off)
	}
	guid, err := hex.DecodeString(c.GUID)
	key, err2 := hex.DecodeString(c.BMCKey)
	if err != nil || err2 != nil || len(guid) != 16 {
		tb.Fatalf("GUID or BMC key: %v, %v", err, err2)
	}
	options := []bmc.Option{bmc.WithKG(key)}
	if len(suites) > 0 {
		options = append(options, bmc.WithCipherSuites(suites))
	}
	r.BMC = bmc.New(bmc.DeviceInfo{IPMIVersion: 0x20}, [16]byte(guid), mock.New(), options...)
	r.BMC.Sessions = bmc.NewSessionStoreWithOptions(clock.Real, bmc.WithMaxSessions(slots))
	r.user(tb, 2, c.Username, bmc.PrivilegeLevelAdministrator)
	r.user(tb, 3, UserOnly, bmc.PrivilegeLevelUser)

	registry := handlers.NewRegistry()
	handlers.RegisterAllHandlers(registry)
	registry.RegisterFunc(types.CommandGetChassisStatus, r.status)
	registry.RegisterFunc(types.CommandChassisControl, r.control)
	registry.RegisterFunc(types.CommandGetSystemGUID, func(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
		return guid, types.CodeOK, nil
	})

	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	r.addr = conn.LocalAddr().String()
	s := server.NewServer(r.BMC, &refusing{udp.Wrap(conn, udp.WithReadTimeout(time.Minute)), r}, server.WithHandlerRegistry(registry))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		s.Close()
		<-done
	})
	return r
}

func (r *Reference) user(tb testing.TB, id uint8, name string, level bmc.PrivilegeLevel) {
	tb.Helper()
	u, err := r.BMC.Users.Add(id, name)
	if err != nil {
		tb.Fatal(err)
	}
	u.SetPassword([]byte(r.Password))
	u.Enabled = true
	u.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: level, Enabled: true}
}

// Addr is host:port.
func (r *Reference) Addr() string { return r.addr }

// Power is the machine's state.
func (r *Reference) Power() agents.PowerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.power&1 == 1 {
		return agents.On
	}
	return agents.Off
}

// SetPower switches the machine behind the BMC's back.
func (r *Reference) SetPower(s agents.PowerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.power &^= 1
	if s == agents.On {
		r.power |= 1
	}
}

// SetFlags sets the bits of the current power state besides that of the power itself.
func (r *Reference) SetFlags(bits byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.power = r.power&1 | bits&^1
}

// SetStatus replaces the answer to Get Chassis Status; nil ends that.
func (r *Reference) SetStatus(answer func() ([]byte, types.CompletionCode)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses = answer
}

// SetControl sets the completion code of Chassis Control, and whether it is ignored.
func (r *Reference) SetControl(code types.CompletionCode, stuck bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code, r.stuck = code, stuck
}

// Lower refuses the next n Chassis Controls for want of privilege.
func (r *Reference) Lower(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lowered = n
}

// NoSlot refuses the next n sessions for want of a slot.
func (r *Reference) NoSlot(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noSlot = n
}

// Calls are the changes of power that were asked for.
func (r *Reference) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Sessions are the slots taken, also by sessions that are still being opened.
func (r *Reference) Sessions() int { return r.BMC.Sessions.Count() }

func (r *Reference) status(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.statuses != nil {
		data, code := r.statuses()
		return data, code, nil
	}
	return []byte{r.power, 0, 0}, types.CodeOK, nil
}

func (r *Reference) control(_ context.Context, _ *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var to chassis.ChassisControlRequest
	if err := to.Unpack(data); err != nil {
		return nil, types.CodeRequestDataTruncated, nil
	}
	word := map[chassis.ChassisControl]string{chassis.ChassisControlPowerDown: "off", chassis.ChassisControlPowerUp: "on"}[to.ChassisControl]
	if word == "" {
		word = "reset"
	}
	r.calls = append(r.calls, word)
	if r.lowered > 0 {
		r.lowered--
		return nil, types.CodeInsufficientPrivilege, nil
	}
	if !r.stuck {
		r.power = r.power&^1 | byte(to.ChassisControl)&1
	}
	return nil, r.code, nil
}

// refusing answers Open Session by itself while there is to be no slot.
type refusing struct {
	*udp.Conn
	r *Reference
}

func (c *refusing) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := c.Conn.ReadFrom(b)
	if err != nil || n < 24 || b[5] != 0x10 {
		return n, addr, err
	}
	c.r.mu.Lock()
	refuse := c.r.noSlot > 0
	if refuse {
		c.r.noSlot--
	}
	c.r.mu.Unlock()
	if !refuse {
		return n, addr, err
	}
	answer := slices.Concat(b[:16], []byte{b[16], byte(types.RmcpStatusCodeNoResToCreateSess), 0, 0}, b[20:24])
	answer[5], answer[14] = 0x11, 8
	c.Conn.WriteTo(answer, addr)
	return 0, addr, errors.New("refused")
}
