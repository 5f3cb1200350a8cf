package fencing

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
	"github.com/hamgr/hamgr/agents/snmp"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
	"github.com/hamgr/hamgr/stonith"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is what really happens to the power behind a device.
type machine struct {
	device stonith.Device
	power  func() agents.PowerState
	reset  func()
	front  *ipmipeer.Proxy // loses and repeats datagrams on the way; nil if there is none
}

func ipmiMachine(t *testing.T, seed uint64) *machine {
	bmc := ipmipeer.Start(t, ipmipeer.Config{})
	front, addr := between(t, bmc.Addr(), seed)
	o := ipmi.Kind().Options().(*ipmi.Options)
	o.Address, o.Username, o.Password, o.CipherSuite = addr, bmc.Username, agents.NewSecret(bmc.Password), 3
	m := &machine{device: deviceOf(t, "bmc", o, ""), power: bmc.Power, reset: func() { bmc.SetPower(agents.On) }, front: front}
	m.device.Timeout, m.device.Sees = 20*time.Second, agents.SeesMachine
	return m
}

// direct is the seed of a machine without a proxy before it.
const direct = 0

func between(t *testing.T, addr string, seed uint64) (*ipmipeer.Proxy, string) {
	if seed == direct {
		return nil, addr
	}
	front := ipmipeer.StartProxy(t, addr, seed, ipmipeer.Faults{})
	return front, front.Addr()
}

func snmpMachine(t *testing.T, seed uint64) *machine {
	pdu := snmppeer.Start(t, "apc-rpdu2")
	front, addr := between(t, pdu.Address(), seed)
	o := snmp.Kind().Options().(*snmp.Options)
	o.Address, o.Version, o.Username, o.Auth, o.AuthPassword, o.Priv, o.PrivPassword =
		addr, "3", snmppeer.Fencer.Name, "SHA256", agents.NewSecret(snmppeer.Fencer.AuthPassword), "AES", agents.NewSecret(snmppeer.Fencer.PrivPassword)
	m := &machine{device: deviceOf(t, "pdu", o, "3"), reset: func() { pdu.SetOutlet(3, "on") }, front: front}
	m.power = func() agents.PowerState {
		if pdu.Outlet(3) == "off" {
			return agents.Off
		}
		return agents.On
	}
	m.device.Timeout = 20 * time.Second
	return m
}

var machines = map[string]func(*testing.T, uint64) *machine{"ipmi": ipmiMachine, "snmp": snmpMachine}

// TestLossyNetwork (B09): with lost, repeated and reordered datagrams no proof is ever false, and at a tenth of
// them 99 of 100 fencings are done within the device's time.
func TestLossyNetwork(t *testing.T) {
	var judge []func()
	var wg sync.WaitGroup
	for name, start := range machines {
		for _, tt := range []struct {
			share float64
			runs  int
			miss  int64 // how many may fail, of all
		}{{0.1, 20, 1}, {0.3, 4, 20}} {
			missed := new(atomic.Int64)
			judge = append(judge, func() {
				if n := missed.Load(); n > tt.miss {
					t.Errorf("%s: %d of %d fencings were not done at %g loss, duplication and reordering", name, n, 5*tt.runs, tt.share)
				}
			})
			for seed := range uint64(5) { // most of the time is waiting: many at once
				m := start(t, seed+1)
				m.front.SetFaults(ipmipeer.Faults{Lose: tt.share, Repeat: tt.share, Reorder: tt.share})
				wg.Go(func() {
					f := stonith.New(nil)
					defer wait(t, f)
					missed.Add(int64(m.fence(t, f, tt.runs)))
				})
			}
		}
	}
	wg.Wait()
	for _, j := range judge {
		j()
	}
}

// fence fences the machine so many times, and gives how often that brought no proof.
func (m *machine) fence(t *testing.T, f *stonith.Fencer, times int) (missed int) {
	for range times {
		m.reset()
		_, err := off(t.Context(), f, "alpha", m.device, nil)
		if err == nil && m.power() != agents.Off {
			t.Error("proven off while it runs")
		}
		if err != nil {
			missed++
			t.Log(err)
		}
	}
	return missed
}

func wait(t *testing.T, f *stonith.Fencer) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := f.Wait(ctx); err != nil {
		t.Errorf("left behind: %v", err)
	}
}

// cancelled is how soon an operation must return once its context has ended. The race detector and a busy machine take
// their share.
const cancelled = 150 * time.Millisecond

// TestRandomCancels: a thousand operations on foreign devices, each cut off at a random moment, return at
// once, and leave no goroutine (TestMain) and no open file behind. Afterwards the devices do their work as before.
func TestRandomCancels(t *testing.T) {
	for name, start := range machines {
		t.Run(name, func(t *testing.T) {
			m := start(t, direct)
			f := stonith.New(nil)
			if _, err := off(t.Context(), f, "alpha", m.device, nil); err != nil {
				t.Fatal(err)
			}
			wait(t, f)
			before := openFiles(t)
			random := rand.New(rand.NewPCG(7, 7))
			target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{m.device}}}
			for n := range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				began := make(chan time.Time, 1)
				time.AfterFunc(time.Duration(random.Int64N(int64(12*time.Millisecond))), func() {
					began <- time.Now()
					cancel()
				})
				switch n % 3 {
				case 0:
					m.reset()
					_, err := off(ctx, f, "alpha", m.device, nil)
					if err == nil && m.power() != agents.Off {
						t.Fatal("proven off while it runs")
					}
				case 1:
					f.Check(ctx, target)
				default:
					f.Status(ctx, target)
				}
				select {
				case at := <-began:
					if late := time.Since(at); late > cancelled {
						t.Errorf("returned %s after it was cancelled", late)
					}
				default: // it was done before
					cancel()
					<-began
				}
			}
			wait(t, f)
			m.reset()
			if _, err := off(t.Context(), f, "alpha", m.device, nil); err != nil || m.power() != agents.Off {
				t.Errorf("afterwards: %v, power %s", err, m.power())
			}
			wait(t, f)
			if after := openFiles(t); after > before {
				t.Errorf("%d open files, %d before", after, before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestFeedsAndMachine: a node with a BMC, and behind it two outlets of a PDU, all real peers. The BMC proves
// by itself; where it is gone, both outlets have to.
func TestFeedsAndMachine(t *testing.T) {
	bmc := ipmiMachine(t, 1)
	pdu := snmpMachine(t, 2)
	pdu.device.Plugs = []string{"3", "4"}
	f := stonith.New(nil)
	defer wait(t, f)
	order := stonith.Order{
		Target: stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{bmc.device}, {pdu.device}}},
		Op:     nextOp(), Gate: func(context.Context) error { return nil },
	}
	proof, err := f.Off(t.Context(), order)
	if err != nil || proof.Level != 1 || bmc.power() != agents.Off || pdu.power() != agents.On {
		t.Fatalf("%v, %+v, outlet %s", err, proof, pdu.power())
	}
	if len(proof.Opinions) != 2 {
		t.Errorf("the outlets' word is not in the proof: %+v", proof.Opinions)
	}
	bmc.reset()
	bmc.front.Cut(true)
	bmc.device.Timeout = time.Second
	order.Levels, order.Op = [][]stonith.Device{{bmc.device}, {pdu.device}}, nextOp()
	proof, err = f.Off(t.Context(), order)
	if err != nil || proof.Level != 2 || len(proof.Plugs) != 2 || pdu.power() != agents.Off {
		t.Fatalf("%v, %+v", err, proof)
	}
	// The outlets of another machine: the BMC, which answers again, still says on. That is no proof.
	bmc.front.Cut(false)
	pdu.reset()
	order.Level, order.Op = 2, nextOp()
	if proof, err := f.Off(t.Context(), order); !errors.Is(err, stonith.ErrContradiction) {
		t.Errorf("outlets off, machine on: %v, %+v", err, proof)
	}
}
