package stonith_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// A host with two feeds lives as long as one of them has power: what was read off at one device
// while the other was still on says nothing once both are read.
func TestFeedsAreOffTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b := stonith.New(nil), fake.New("3"), fake.New("3")
		a.SetPower("3", agents.Off) // in the middle of a reboot that somebody ordered
		time.AfterFunc(3*time.Second, func() { a.SetPower("3", agents.On) })
		b.Behave(fake.Behavior{Lag: 5 * time.Second})
		first, second := bmc("pdu-a", a, "3"), bmc("pdu-b", b, "3")
		first.Timeout, second.Timeout = 2*time.Second, 10*time.Second
		proof, err := f.Off(t.Context(), order(1, level(first, second)))
		if err != nil {
			t.Fatal(err)
		}
		if a.Power("3") != agents.Off || b.Power("3") != agents.Off {
			t.Errorf("proven off while pdu-a is %v and pdu-b is %v", a.Power("3"), b.Power("3"))
		}
		if proof.Plugs[0].WasOff || proof.Plugs[0].OffSince.Before(b.History("3")[1].At) {
			t.Errorf("the proof of pdu-a is from before it came on: %+v", proof.Plugs[0])
		}
		f.Wait(t.Context())
	})
}

// A device that was done early is read once more, and ordered nothing, when the last one is off.
func TestEarlyFeedIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b := stonith.New(nil), fake.New("3"), fake.New("3")
		b.Behave(fake.Behavior{Lag: 5 * time.Second})
		first, second := bmc("pdu-a", a, "3"), bmc("pdu-b", b, "3")
		first.Timeout = 2 * time.Second
		begun := time.Now()
		proof, err := f.Off(t.Context(), order(1, level(first, second)))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 5*time.Second+second.Settle+300*time.Millisecond {
			t.Errorf("took %v", took)
		}
		f.Wait(t.Context())
		last, offs := fake.Call{}, 0
		for _, c := range a.Calls() {
			switch c.Verb {
			case "status":
				last = c
			case "off":
				offs++
			}
		}
		if offs != 1 || last.State != agents.Off || last.At.Before(proof.OffSince()) {
			t.Errorf("%d offs, pdu-a last read %v at %v; all were off at %v", offs, last.State, last.At, proof.OffSince())
		}
	})
}
