package stonith_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// Two BMCs with one address, or a name that leads to another: who answered in the beginning
// need not be who answers when off is read.
func TestAnotherMachineAnswersLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, mine := stonith.New(nil), fake.New()
		mine.Behave(fake.Behavior{Serial: "SN1", Command: "ignore"})
		time.AfterFunc(3*time.Second, func() {
			mine.Behave(fake.Behavior{Serial: "SN2", Status: "off"})
		})
		o := order(1, level(sees("alpha-bmc", mine)))
		o.Machine.Serial = "SN1"
		proof, err := f.Off(t.Context(), o)
		if !errors.Is(err, agents.ErrIdentity) {
			t.Errorf("%v, proof %+v while the power is %v", err, proof, mine.Power(""))
		}
		f.Wait(t.Context())
	})
}

// Nor is an off sent to it, because it is on, that was meant for the one that does not answer any more.
func TestNoRepeatedOffToAnotherMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Serial: "SN1", Command: "ignore"})
		o := order(1, level(sees("alpha-bmc", d)))
		o.Machine.Serial = "SN1"
		time.AfterFunc(time.Second, func() { d.Behave(fake.Behavior{Serial: "SN2"}) })
		begun, offs := time.Now(), 0
		_, err := f.Off(t.Context(), o)
		if !errors.Is(err, agents.ErrIdentity) {
			t.Error(err)
		}
		f.Wait(t.Context())
		for _, c := range d.Calls() {
			if c.Verb == "off" && c.At.Sub(begun) > time.Second {
				offs++
			}
		}
		if offs > 0 {
			t.Errorf("%d offs were sent to another machine", offs)
		}
	})
}

// The question costs no time beside the settle time, and none that is not answered keeps a proof.
func TestIdentityWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Serial: "SN1", Answer: 50 * time.Millisecond})
		o := order(1, level(sees("alpha-bmc", d)))
		o.Machine.Serial = "SN1"
		o.Observe = func(s stonith.Step) {
			if s.What == "off" {
				d.Behave(fake.Behavior{Serial: "SN1", Answer: 50 * time.Millisecond, Identity: "error"})
			}
		}
		begun := time.Now()
		if _, err := f.Off(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		// Identity, read, off, the first pause, read, the settle time, read.
		if took := time.Since(begun); took != 5*50*time.Millisecond+2*time.Millisecond+300*time.Millisecond {
			t.Errorf("took %v", took)
		}
		f.Wait(t.Context())
	})
}
