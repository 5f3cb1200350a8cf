// Package fencing measures and tests the way from an order to a proof against foreign BMCs and PDUs, beside the
// agents that ClusterLabs' Pacemaker uses.
package fencing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
	"github.com/hamgr/hamgr/agents/snmp"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
	"github.com/hamgr/hamgr/stonith"
)

// What hamgr must reach, as ratios of times on the same peer.
const (
	ipmiOffNoWait  = 10  // against fence_ipmilan --power-wait=0
	ipmiOffDefault = 100 // against fence_ipmilan as it comes
	ipmiStatus     = 10
	snmpOff        = 20  // against fence_apc_snmp as it comes
	eightAtOnce    = 1.5 // eight nodes against one
)

// settle is the least that a file may set: what the devices and the engine cost is measured, not the waiting between the
// two reads that make a proof.
const settle = 10 * time.Millisecond

// subject is a peer, how hamgr drives it, and how the foreign agent does.
type subject struct {
	device  stonith.Device
	reset   func() // switches the peer on again, out of band
	foreign func(tb testing.TB, action string, more ...string) time.Duration
}

func ipmiSubject(tb testing.TB) *subject {
	bmc := ipmipeer.Start(tb, ipmipeer.Config{})
	_, port, _ := strings.Cut(bmc.Addr(), ":")
	o := ipmi.Kind().Options().(*ipmi.Options)
	o.Address, o.Username, o.Password, o.CipherSuite = bmc.Addr(), bmc.Username, agents.NewSecret(bmc.Password), 3
	return &subject{
		device: deviceOf(tb, "bmc", o, ""),
		reset:  func() { bmc.SetPower(agents.On) },
		foreign: func(tb testing.TB, action string, more ...string) time.Duration {
			return foreign(tb, "fence_ipmilan", append([]string{"action=" + action, "ip=127.0.0.1", "ipport=" + port,
				"username=" + bmc.Username, "password=" + bmc.Password, "lanplus=1", "cipher=3"}, more...))
		},
	}
}

func snmpSubject(tb testing.TB) *subject {
	pdu := snmppeer.Start(tb, "apc-rpdu")
	_, port, _ := strings.Cut(pdu.Address(), ":")
	o := snmp.Kind().Options().(*snmp.Options)
	o.Address, o.Version, o.Community = pdu.Address(), "2c", agents.NewSecret("private")
	return &subject{
		device: deviceOf(tb, "pdu", o, "3"),
		reset:  func() { pdu.SetOutlet(3, "on") },
		foreign: func(tb testing.TB, action string, more ...string) time.Duration {
			return foreign(tb, "fence_apc_snmp", append([]string{"action=" + action, "ip=127.0.0.1", "ipport=" + port,
				"community=private", "snmp_version=2c", "plug=3"}, more...))
		},
	}
}

func deviceOf(tb testing.TB, name string, o agents.Options, plug string) stonith.Device {
	if err := o.Validate(); err != nil {
		tb.Fatal(err)
	}
	return stonith.Device{
		Name: name, Plugs: []string{plug}, Timeout: 10 * time.Second, Settle: settle,
		Open: func() (agents.Agent, error) { return o.Open(nil) },
	}
}

// foreign runs a ClusterLabs agent, its options on standard input, and gives the time that it took.
func foreign(tb testing.TB, name string, options []string) time.Duration {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name)
	cmd.Stdin = strings.NewReader(strings.Join(options, "\n") + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 && slices.Contains(options, "action=status") {
		err = nil // the machine is off
	}
	if err != nil {
		tb.Fatalf("%s (Debian package fence-agents): %v\n%s", name, err, out.String())
	}
	return took
}

// ops numbers the operations of this process.
var ops = struct {
	sync.Mutex
	last uint64
}{}

func nextOp() uint64 {
	ops.Lock()
	defer ops.Unlock()
	ops.last++
	return ops.last
}

func off(ctx context.Context, f *stonith.Fencer, node string, d stonith.Device, observe func(stonith.Step)) (stonith.Proof, error) {
	return f.Off(ctx, stonith.Order{
		Target: stonith.Target{Node: node, Levels: [][]stonith.Device{{d}}},
		Op:     nextOp(), Gate: func(context.Context) error { return nil }, Observe: observe,
	})
}

// off gives the median times of an off: until it is read back once, which is where the foreign agents end, and until it
// is proven by a second read after the settle time.
func (s *subject) off(b *testing.B, f *stonith.Fencer, n int) (readBack, proven time.Duration) {
	var backs []time.Duration
	proven = times(n, func() time.Duration {
		s.reset()
		began, back := time.Now(), time.Duration(0)
		_, err := off(b.Context(), f, "alpha", s.device, func(step stonith.Step) {
			if step.What == "read" && step.State == agents.Off && back == 0 {
				back = time.Since(began)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		backs = append(backs, back)
		return time.Since(began)
	})
	slices.Sort(backs)
	return backs[n/2], proven
}

func (s *subject) status(b *testing.B, f *stonith.Fencer) time.Duration {
	began := time.Now()
	got := f.Status(b.Context(), stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{s.device}}})
	took := time.Since(began)
	if len(got) != 1 || got[0].State == agents.Unknown {
		b.Fatalf("status: %+v", got)
	}
	return took
}

// times runs f n times and gives the median.
func times(n int, f func() time.Duration) time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, f())
	}
	slices.Sort(all)
	return all[n/2]
}

func compare(b *testing.B, what string, ours, theirs time.Duration, name string, want float64) {
	ratio := float64(theirs) / float64(ours)
	fmt.Printf("%-36s hamgr %9s   %s %9s   %6.1f times (at least %g)\n", what, ours.Round(10*time.Microsecond), name, theirs.Round(time.Millisecond), ratio, want)
	b.ReportMetric(ratio, strings.ReplaceAll(what, " ", "-")+"-ratio")
	if ratio < want {
		b.Errorf("%s: only %.1f times faster than %s", what, ratio, name)
	}
}

// BenchmarkFencing prints how much faster hamgr is than ClusterLabs' agents on the same peer. An off is measured from the order to
// the first read of off, as the foreign agents end there; the proof takes a second one.
func BenchmarkFencing(b *testing.B) {
	const n = 7
	f := stonith.New(nil)
	defer func() { _ = f.Wait(context.Background()) }()
	b.Run("ipmi", func(b *testing.B) {
		s := ipmiSubject(b)
		back, proven := s.off(b, f, 4*n)
		status := times(4*n, func() time.Duration { return s.status(b, f) })
		theirOff := func(more ...string) time.Duration {
			return times(n, func() time.Duration { s.reset(); return s.foreign(b, "off", more...) })
		}
		compare(b, "ipmi status", status, times(n, func() time.Duration { return s.foreign(b, "status") }), "fence_ipmilan", ipmiStatus)
		compare(b, "ipmi off + read back, power_wait=0", back, theirOff("power_wait=0"), "fence_ipmilan", ipmiOffNoWait)
		compare(b, "ipmi off + read back", back, theirOff(), "fence_ipmilan", ipmiOffDefault)
		fmt.Printf("%-36s hamgr %9s   (two reads, %s apart)\n", "ipmi off, proven", proven.Round(10*time.Microsecond), settle)
	})
	b.Run("snmp", func(b *testing.B) {
		s := snmpSubject(b)
		back, proven := s.off(b, f, 4*n)
		theirs := times(n, func() time.Duration { s.reset(); return s.foreign(b, "off") })
		compare(b, "snmp off + read back", back, theirs, "fence_apc_snmp", snmpOff)
		fmt.Printf("%-36s hamgr %9s   (two reads, %s apart)\n", "snmp off, proven", proven.Round(10*time.Microsecond), settle)
	})
}

// BenchmarkEightNodes prints how long eight nodes take that are fenced at once, in times of one: each with a BMC of its own, and
// all on one PDU.
func BenchmarkEightNodes(b *testing.B) {
	const nodes = 8
	f := stonith.New(nil)
	defer func() { _ = f.Wait(context.Background()) }()
	together := func(b *testing.B, devices []stonith.Device) time.Duration {
		var wg sync.WaitGroup
		began := time.Now()
		for i, d := range devices {
			wg.Go(func() {
				if _, err := off(b.Context(), f, "node"+strconv.Itoa(i), d, nil); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	show := func(b *testing.B, what string, one, eight time.Duration) {
		ratio := float64(eight) / float64(one)
		fmt.Printf("%-36s one %9s   eight %9s   %4.2f times (at most %g)\n", what, one.Round(10*time.Microsecond), eight.Round(10*time.Microsecond), ratio, eightAtOnce)
		b.ReportMetric(ratio, "eight-to-one")
		if ratio > eightAtOnce {
			b.Errorf("%s: eight nodes take %.2f times as long as one", what, ratio)
		}
	}
	// A file's default: devices take seconds to cut the power, and this is the least that a proof takes.
	const asConfigured = 100 * time.Millisecond
	b.Run("bmcs", func(b *testing.B) {
		var devices []stonith.Device
		var resets []func()
		for i := range nodes {
			s := ipmiSubject(b)
			s.device.Name, s.device.Settle = "bmc"+strconv.Itoa(i), asConfigured
			devices, resets = append(devices, s.device), append(resets, s.reset)
		}
		measure := func(n int) time.Duration {
			return times(7, func() time.Duration {
				for _, reset := range resets {
					reset()
				}
				return together(b, devices[:n])
			})
		}
		show(b, "ipmi, a BMC each", measure(1), measure(nodes))
	})
	b.Run("pdu", func(b *testing.B) {
		pdu := snmppeer.Start(b, "apc-rpdu")
		o := snmp.Kind().Options().(*snmp.Options)
		o.Address, o.Version, o.Community = pdu.Address(), "2c", agents.NewSecret("private")
		var devices []stonith.Device
		for i := range nodes {
			d := deviceOf(b, "pdu", o, strconv.Itoa(i+1))
			d.Settle = asConfigured
			devices = append(devices, d)
		}
		measure := func(n int) time.Duration {
			return times(7, func() time.Duration {
				for i := range nodes {
					pdu.SetOutlet(i+1, "on")
				}
				return together(b, devices[:n])
			})
		}
		show(b, "snmp, one PDU", measure(1), measure(nodes))
	})
}
