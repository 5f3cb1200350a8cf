package ipmi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// lies are answers "off" for each sequence number that a question may have, made into
// datagrams by dress.
func lies(dress func(message []byte) []byte) (all [][]byte) {
	for seq := range uint8(64) {
		all = append(all, dress(off(question{types.CommandGetChassisStatus, seq})))
	}
	return all
}

// TestForgedAnswers: the machine is on. Whatever somebody else says before the BMC, or in its
// stead, the state is on or unknown.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	foreign := testKeys(t, suite17, 9)
	for name, forge := range map[string]func(answer []byte) [][]byte{
		"IPMI 1.5": func([]byte) [][]byte {
			return lies(func(m []byte) []byte {
				return append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(m))}, m...)
			})
		},
		"unauthenticated": func([]byte) [][]byte {
			return lies(func(m []byte) []byte { return protocol.BuildRMCPPlusPacket(kindIPMI, 0, 0, 0, m) })
		},
		"unauthenticated, in the session": func(b []byte) [][]byte {
			return lies(func(m []byte) []byte {
				return protocol.BuildRMCPPlusPacket(kindIPMI, 0, binary.LittleEndian.Uint32(b[6:]), 1000, m)
			})
		},
		"signed with other keys": func(b []byte) [][]byte {
			return lies(func(m []byte) []byte { return seal(t, foreign, binary.LittleEndian.Uint32(b[6:]), 1000, m) })
		},
		"signed flag, zeros": func(b []byte) [][]byte {
			return lies(func(m []byte) []byte {
				f := protocol.BuildRMCPPlusPacket(kindIPMI, 0xc0, binary.LittleEndian.Uint32(b[6:]), 1000, m)
				return append(f, make([]byte, 18)...)
			})
		},
		"another session ID": func(b []byte) [][]byte { b[6] ^= 1; return [][]byte{b} },
		"bits changed": func(b []byte) (all [][]byte) {
			for i := headerLength; i < len(b); i++ {
				c := bytes.Clone(b)
				c[i] ^= 1
				all = append(all, c)
			}
			return all
		},
		"cut": func(b []byte) (all [][]byte) {
			for i := range b {
				all = append(all, b[:i])
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
			proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
			var said logged
			h, err := options(proxy.Addr()).Open(slog.New(slog.NewTextHandler(&said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			a := h.(*agent)
			reads(t, a, agents.On)
			before := func(b []byte) [][]byte { return append(forge(bytes.Clone(b)), b) }
			proxy.Forge(before)
			reads(t, a, agents.On)
			proxy.Forge(forge)
			reading, err := a.Status(within(t, 300*time.Millisecond), "")
			if reading.State != agents.Unknown || !errors.Is(err, agents.ErrUnreachable) {
				t.Errorf("with forged answers alone: %v, %v", reading, err)
			}
			proxy.Forge(nil)
			reads(t, a, agents.On)
			a.Close(context.Background())
			if !said.has("forged") {
				t.Error("the log says nothing of forged datagrams")
			}
		})
	}
}

// TestReplay: the BMC's own answers "off" of the time when the machine was off come again, each
// when a question with the same sequence number is open.
func TestReplay(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{Off: true}, 4)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	a := open(t, options(proxy.Addr()))
	reads(t, a, agents.Off)
	recorded := make(chan []byte, 1024) // on a busy machine a question is asked more than once
	proxy.Forge(func(b []byte) [][]byte { recorded <- b; return [][]byte{b} })
	for range 64 {
		reads(t, a, agents.Off)
	}
	r.SetPower(agents.On)
	proxy.Forge(func(b []byte) [][]byte {
		select {
		case old := <-recorded:
			return [][]byte{old, b}
		default:
			return [][]byte{b}
		}
	})
	for range 64 {
		reads(t, a, agents.On)
	}
	proxy.Forge(nil)
}

// TestLateAnswer: an answer that comes after its question was given up is not the answer to the
// next one, though it is authentic and the newest that the BMC sent.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	a := open(t, options(proxy.Addr()))
	reads(t, a, agents.On)
	r.SetPower(agents.Off)
	held := make(chan []byte, 8)
	proxy.Forge(func(b []byte) [][]byte { held <- b; return nil })
	if reading, err := a.Status(within(t, 100*time.Millisecond), ""); err == nil {
		t.Fatalf("an answer without one: %v", reading)
	}
	r.SetPower(agents.On)
	late := <-held
	proxy.Forge(func([]byte) [][]byte { return [][]byte{late} })
	if reading, err := a.Status(within(t, 200*time.Millisecond), ""); reading.State != agents.Unknown || err == nil {
		t.Errorf("%v, %v", reading, err)
	}
	proxy.Forge(nil)
	reads(t, a, agents.On)
}

// TestManyLateAnswers: sequence numbers come round. An answer that was held back for as long as
// they take is not that to the question which has its number now.
func TestManyLateAnswers(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{Off: true}, 4)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	a := open(t, options(proxy.Addr()))
	reads(t, a, agents.Off)
	held := make(chan []byte, 1000)
	proxy.Forge(func(b []byte) [][]byte { held <- b; return nil })
	a.Status(within(t, 20*time.Millisecond), "")
	late := <-held
	r.SetPower(agents.On)
	for range 63 {
		a.Status(within(t, 5*time.Millisecond), "")
	}
	proxy.Forge(func([]byte) [][]byte { return [][]byte{late} })
	if reading, err := a.Status(within(t, 200*time.Millisecond), ""); reading.State != agents.Unknown || err == nil {
		t.Errorf("%v, %v", reading, err)
	}
	proxy.Forge(nil)
	reads(t, a, agents.On)
}

// TestFlood (B12): datagrams of every kind, made from the BMC's own and from nothing, arrive before
// each answer of the BMC, from the first to the last of a session. Nothing crashes, and a machine
// that is on is never off. HAMGR_IPMI_FLOOD sets how many; make fuzz sends 100 000.
func TestFlood(t *testing.T) {
	t.Parallel()
	total := 100_000
	if testing.Short() || raceEnabled {
		total = 10_000
	}
	if n, err := strconv.Atoi(os.Getenv("HAMGR_IPMI_FLOOD")); err == nil {
		total = n
	}
	sim, reference := ipmipeer.Start(t, ipmipeer.Config{}), ipmipeer.StartReference(t, ipmipeer.Config{}, 20)
	t.Run("ipmi_sim", func(t *testing.T) { t.Parallel(); flood(t, sim.Addr(), total/5) })
	t.Run("reference", func(t *testing.T) { t.Parallel(); flood(t, reference.Addr(), total-total/5) })
}

func flood(t *testing.T, addr string, total int) {
	const each = 60 // as many as the socket's buffer holds, with the true answer
	proxy := ipmipeer.StartProxy(t, addr, 1, ipmipeer.Faults{})
	random := rand.New(rand.NewPCG(5, 6))
	var seen [][]byte
	var sent atomic.Int64
	proxy.Forge(func(b []byte) (out [][]byte) {
		if len(seen) < 64 {
			seen = append(seen, b)
		} else {
			seen[random.IntN(len(seen))] = b
		}
		for range each {
			out = append(out, mutated(random, seen, b))
		}
		sent.Add(each)
		return append(out, b)
	})
	on, ops := 0, 0
	for ; sent.Load() < int64(total); ops++ {
		a := open(t, options(proxy.Addr()))
		for range 3 {
			reading, err := a.Status(within(t, 300*time.Millisecond), "")
			switch {
			case reading.State == agents.Off:
				t.Fatalf("off, and the machine is on")
			case err == nil && reading.State == agents.On:
				on++
			}
		}
		a.Close(context.Background())
	}
	t.Logf("%d datagrams, %d of %d statuses read on", sent.Load(), on, 3*ops)
	if on < ops { // refusals that are forged end a login, so not all can
		t.Error("hardly any status was read: nothing was tried")
	}
}

// mutated makes a datagram out of those seen: most times close to a true one.
func mutated(random *rand.Rand, seen [][]byte, now []byte) []byte {
	b := now
	if random.IntN(2) == 0 {
		b = seen[random.IntN(len(seen))]
	}
	b = bytes.Clone(b)
	switch random.IntN(8) {
	case 0: // nothing true at all
		b = make([]byte, random.IntN(200))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
	case 1: // a true header
		for i := headerLength; i < len(b); i++ {
			b[i] = byte(random.Uint32())
		}
	case 2:
		return b[:random.IntN(len(b)+1)]
	case 3:
		b[5] = []byte{0, 0x11, 0x13, 0x15, 0x40, 0x80, 0xc0, byte(random.Uint32())}[random.IntN(8)]
	case 4:
		b[14], b[15] = byte(random.Uint32()), byte(random.IntN(2))
	case 5:
		b = append(b, make([]byte, random.IntN(32))...)
	}
	for range random.IntN(4) {
		if len(b) > 0 {
			i := random.IntN(len(b))
			if i == 17 && b[5]&0xc0 == 0 {
				continue // the status of the handshake: a forged refusal ends the login, rightly
			}
			b[i] ^= 1 << random.IntN(8)
		}
	}
	return b
}
