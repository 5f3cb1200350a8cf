package stonith_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// sees describes a device that sees the machine itself.
func sees(name string, d *fake.Device) stonith.Device {
	device := bmc(name, d)
	device.Sees = agents.SeesMachine
	return device
}

// A second opinion gives way: another node's order for the device does not wait for it, and the
// proof does without.
func TestOpinionGivesWayToOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, pdu, chassis := stonith.New(nil), fake.New("3"), fake.New("1", "2")
		chassis.Behave(fake.Behavior{Answer: 200 * time.Millisecond})
		machine := func(plug string) stonith.Device {
			d := bmc("chassis", chassis, plug)
			d.Sees = agents.SeesMachine
			return d
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			proof, err := f.Off(t.Context(), order(1, level(bmc("pdu-a", pdu, "3")), level(machine("1"))))
			if err != nil || len(proof.Opinions) != 1 || !strings.Contains(proof.Opinions[0].Error, "gave way") {
				t.Errorf("alpha: %v, opinions %+v", err, proof.Opinions)
			}
		})
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond) // the second opinion is being read
			begun := time.Now()
			o := order(1, level(machine("2")))
			o.Node = "beta"
			if _, err := f.Off(t.Context(), o); err != nil {
				t.Error(err)
			}
			// The close of the other's handle, read, off, two reads, the settle time and the first pause.
			if took := time.Since(begun); took > 5*200*time.Millisecond+320*time.Millisecond {
				t.Errorf("beta took %v", took)
			}
		})
		wg.Wait()
		f.Wait(t.Context())
		if overlapping(chassis) || chassis.Overlapped() {
			t.Error("two calls at once")
		}
	})
}

// A contradiction is found in the error, and a level's own devices are not asked again.
func TestContradiction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, pdu, machine := stonith.New(nil), fake.New("3"), fake.New()
		machine.Behave(fake.Behavior{Command: "ignore"})
		levels := [][]stonith.Device{{bmc("pdu-a", pdu, "3")}, {sees("alpha-bmc", machine)}}
		proof, err := f.Off(t.Context(), order(1, levels...))
		var failure *stonith.Failure
		if !errors.Is(err, stonith.ErrContradiction) || !errors.As(err, &failure) || !failure.Commanded || len(proof.Plugs) != 0 {
			t.Fatalf("%v, proof %+v", err, proof)
		}
		if len(failure.Devices) != 2 || failure.Devices[0].Error != "contradicted by alpha-bmc" {
			t.Errorf("results %+v", failure.Devices)
		}

		machine.SetPower("", agents.Off)
		both := level(levels[0][0], levels[1][0])
		proof, err = f.Off(t.Context(), order(2, both, both))
		if err != nil || len(proof.Opinions) != 0 {
			t.Errorf("a level of both: %v, opinions %+v", err, proof.Opinions)
		}
	})
}

// What is written down for later reads back the same.
func TestResultsInJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, pdu, machine := stonith.New(nil), fake.New("3"), fake.New()
		machine.Behave(fake.Behavior{Login: true})
		proof, err := f.Off(t.Context(), order(1, level(sees("alpha-bmc", machine)), level(bmc("pdu-a", pdu, "3"))))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(proof)
		if err != nil {
			t.Fatal(err)
		}
		var back stonith.Proof
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(back.Devices, proof.Devices) || !slices.Equal(back.Opinions, proof.Opinions) || len(back.Devices) != 2 {
			t.Errorf("%s reads back as %+v", text, back)
		}
		if d := back.Devices[0]; d.Trouble != agents.Credentials || d.Level != 1 || d.Device != "alpha-bmc" || d.State != agents.Unknown {
			t.Errorf("the level that failed: %+v", d)
		}
	})
}

// What an operation may take is kept with every device at its slowest: one that never reads off
// beside a second opinion that never comes.
func TestLevelBudget(t *testing.T) {
	device := func(timeout time.Duration) stonith.Device { return stonith.Device{Timeout: timeout} }
	levels := [][]stonith.Device{{device(10 * time.Second), device(4 * time.Second)}, {device(300 * time.Millisecond)}, {}}
	for level, want := range map[int]time.Duration{
		-1: 0, 0: 0, 4: 0, 3: 0, // nothing to do there
		1: 10300 * time.Millisecond, // the second level's device gets no more than its timeout
		2: 1300 * time.Millisecond,
	} {
		if got := stonith.LevelBudget(levels, level); got != want {
			t.Errorf("level %d: %v, want %v", level, got, want)
		}
	}
	if got := stonith.Budget(levels); got != 11600*time.Millisecond {
		t.Errorf("all: %v", got)
	}
	huge := [][]stonith.Device{{device(math.MaxInt64)}, {device(math.MaxInt64 - 1)}, {device(math.MinInt64)}}
	for level := range 5 {
		if got := stonith.LevelBudget(huge, level); got < 0 || level == 1 && got != math.MaxInt64 {
			t.Errorf("level %d of the huge: %v", level, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		pdu, machine := fake.New("3"), fake.New()
		pdu.Behave(fake.Behavior{Lag: 1750 * time.Millisecond})
		machine.Behave(fake.Behavior{Stall: []string{"status"}})
		late := bmc("pdu-a", pdu, "3")
		late.Timeout, late.Settle = 2*time.Second, 0
		o := order(1, level(late), level(sees("alpha-bmc", machine)))
		begun := time.Now()
		_, err := stonith.New(nil).Off(t.Context(), o)
		if took := time.Since(begun); err != nil || took <= late.Timeout || took > stonith.LevelBudget(o.Levels, 1) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
