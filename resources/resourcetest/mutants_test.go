package resourcetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// bent is an honest resource with some of its calls replaced.
type bent struct {
	*honest
	probe              func(context.Context) (resources.State, string, error)
	start, stop, check func(context.Context) error
	died               func(context.Context) error
}

func (b bent) Probe(ctx context.Context) (resources.State, string, error) {
	if b.probe != nil {
		return b.probe(ctx)
	}
	return b.honest.Probe(ctx)
}

func (b bent) Start(ctx context.Context) error { return or(b.start, b.honest.Start)(ctx) }
func (b bent) Stop(ctx context.Context) error  { return or(b.stop, b.honest.Stop)(ctx) }
func (b bent) Check(ctx context.Context) error { return or(b.check, b.honest.Check)(ctx) }
func (b bent) Died(ctx context.Context) error  { return or(b.died, b.honest.Died)(ctx) }

func or(f, honest func(context.Context) error) func(context.Context) error {
	if f != nil {
		return f
	}
	return honest
}

// other is another resource on the same host, which the same judge sees.
func (h *honest) other() resources.Resource {
	env := h.env
	env.Resource = "copy"
	return h.m.resource(env)
}

// deaf calls with a context that ends too late.
func deaf(call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit+slack+40*time.Millisecond)
		defer cancel()
		return call(late)
	}
}

var (
	// testsEnd ends what is left behind.
	testsEnd = make(chan struct{})
	// lost are files that nobody closes before.
	lost []*os.File
	// orphans are processes that nobody waits for before.
	orphans []*exec.Cmd
)

// mutants are resources that break one rule each, with a check that must notice.
var mutants = map[string]struct {
	bend    func(*honest) all
	noticed string
}{
	"start only says so": {func(h *honest) all {
		return bent{honest: h, start: func(context.Context) error { return nil }}
	}, "start and stop"},
	"stop only says so": {func(h *honest) all {
		return bent{honest: h, stop: func(context.Context) error { return nil }}
	}, "start and stop"},
	"stop takes an error for done": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error { h.Stop(ctx); return nil }}
	}, "cannot be stopped"},
	"stop gives up at the second try": {func(h *honest) all {
		tried := false
		return bent{honest: h, stop: func(ctx context.Context) error {
			if tried {
				return nil
			}
			tried = true
			return h.Stop(ctx)
		}}
	}, "cannot be stopped"},
	"a stop of what is stopped fails": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); state == resources.Inactive {
				return errors.New("not active")
			}
			return h.Stop(ctx)
		}}
	}, "stop without start"},
	"takes an error for inactive": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if err != nil {
				return resources.Inactive, "", nil
			}
			return state, detail, nil
		}}
	}, "cannot be told"},
	"takes a hang for inactive": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if ctx.Err() != nil {
				return resources.Inactive, "", nil
			}
			return state, detail, err
		}}
	}, "a hang"},
	"takes an error for active": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if err != nil {
				return resources.Active, "", nil
			}
			return state, detail, nil
		}}
	}, "cannot be told"},
	"inactive beside an error": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if err != nil {
				state = resources.Inactive
			}
			return state, detail, err
		}}
	}, "cannot be told"},
	"a probe is deaf": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (state resources.State, detail string, err error) {
			err = deaf(func(ctx context.Context) (err error) { state, detail, err = h.Probe(ctx); return err })(ctx)
			return state, detail, err
		}}
	}, "a hang"},
	"start is deaf": {func(h *honest) all { return bent{honest: h, start: deaf(h.Start)} }, "a hang"},
	"stop is deaf":  {func(h *honest) all { return bent{honest: h, stop: deaf(h.Stop)} }, "a hang"},
	"check is deaf": {func(h *honest) all { return bent{honest: h, check: deaf(h.Check)} }, "a hang"},
	"a hang is blamed on the setup": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			err := h.Start(ctx)
			if err != nil {
				err = fmt.Errorf("%w: %w", resources.ErrSetup, err)
			}
			return err
		}}
	}, "a hang"},
	"starts although its time is over": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error { return h.Start(context.WithoutCancel(ctx)) }}
	}, "a context that has ended"},
	"a stop waits although its time is over": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error { return h.Stop(context.WithoutCancel(ctx)) }}
	}, "a context that has ended"},
	"hides that its time is over": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error {
			if ctx.Err() != nil {
				return errors.New("it does not stop")
			}
			return h.Stop(ctx)
		}}
	}, "a context that has ended"},
	"a second start makes a second one": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); state == resources.Active {
				return h.other().Start(ctx)
			}
			return h.Start(ctx)
		}, stop: func(ctx context.Context) error { return errors.Join(h.Stop(ctx), h.other().Stop(ctx)) }}
	}, "start twice"},
	"a second start is a restart": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error { h.Stop(ctx); return h.Start(ctx) }}
	}, "start twice"},
	"a second start fails": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); state == resources.Active {
				return errors.New("it is active already")
			}
			return h.Start(ctx)
		}}
	}, "start twice"},
	"starts beside what a former grant left": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if err := h.Start(ctx); err == nil || ctx.Err() != nil {
				return err
			}
			return h.other().Start(ctx)
		}}
	}, "a higher token"},
	"does not see what a former grant left": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if state == resources.Failed {
				state = resources.Inactive
			}
			return state, detail, err
		}}
	}, "a higher token"},
	"does not stop what a former grant left": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); state == resources.Failed {
				return nil
			}
			return h.Stop(ctx)
		}}
	}, "a higher token"},
	"remembers that it started": {func(h *honest) all {
		started := false
		return bent{honest: h, start: func(ctx context.Context) error {
			err := h.Start(ctx)
			started = started || err == nil
			return err
		}, probe: func(ctx context.Context) (resources.State, string, error) {
			if started && ctx.Err() == nil {
				return resources.Active, "", nil
			}
			return h.Probe(ctx)
		}, stop: func(ctx context.Context) error { started = false; return h.Stop(ctx) }}
	}, "killed from outside"},
	"cannot stop what was killed": {func(h *honest) all {
		started := false
		return bent{honest: h, start: func(ctx context.Context) error { started = true; return h.Start(ctx) }, stop: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); started && state == resources.Inactive {
				return errors.New("it has gone")
			}
			started = false
			return h.Stop(ctx)
		}}
	}, "killed from outside"},
	"finds only what it started": {func(h *honest) all {
		started := false
		return bent{honest: h, start: func(ctx context.Context) error { started = true; return h.Start(ctx) },
			probe: func(ctx context.Context) (resources.State, string, error) {
				if !started {
					return resources.Inactive, "", nil
				}
				return h.Probe(ctx)
			}}
	}, "a restart of the daemon"},
	"stops only what it started": {func(h *honest) all {
		started := false
		return bent{honest: h, start: func(ctx context.Context) error { started = true; return h.Start(ctx) },
			stop: func(ctx context.Context) error {
				if !started {
					return nil
				}
				return h.Stop(ctx)
			}}
	}, "a restart of the daemon"},
	"a probe starts it": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			h.Start(ctx)
			return h.Probe(ctx)
		}}
	}, "never started"},
	"new starts it": {func(h *honest) all { h.Start(context.Background()); return h }, "never started"},
	"check starts it": {func(h *honest) all {
		return bent{honest: h, check: func(ctx context.Context) error { return h.Start(ctx) }}
	}, "check changes nothing"},
	"check stops it": {func(h *honest) all {
		return bent{honest: h, check: func(ctx context.Context) error { return h.Stop(ctx) }}
	}, "check changes nothing"},
	"check tries it": {func(h *honest) all {
		return bent{honest: h, check: func(ctx context.Context) error {
			if state, _, _ := h.Probe(ctx); state == resources.Active {
				return nil
			}
			return errors.Join(h.Start(ctx), h.Stop(ctx))
		}}
	}, "check changes nothing"},
	"check sees nothing": {func(h *honest) all {
		return bent{honest: h, check: func(ctx context.Context) error { return ctx.Err() }}
	}, "trouble"},
	"check sees a trouble that there is not": {func(h *honest) all {
		return bent{honest: h, check: func(ctx context.Context) error { return resources.ErrSetup }}
	}, "check changes nothing"},
	"blames nobody": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if err := h.Start(ctx); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}
	}, "trouble"},
	"blames all": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if err := h.Start(ctx); err != nil {
				return errors.Join(err, resources.ErrNode, resources.ErrSetup)
			}
			return nil
		}}
	}, "trouble"},
	"starts what is held elsewhere": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			err := h.Check(ctx)
			return errors.Join(err, h.Resource.Start(ctx))
		}}
	}, "trouble"},
	"a failed start makes a failed stop": {func(h *honest) all {
		failed := false
		return bent{honest: h, start: func(ctx context.Context) error { err := h.Start(ctx); failed = err != nil; return err },
			stop: func(ctx context.Context) error {
				if failed {
					return errors.New("it was not started")
				}
				return h.Stop(ctx)
			}}
	}, "trouble"},
	"tells of no death": {func(h *honest) all {
		return bent{honest: h, died: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	}, "a death is told"},
	"tells of a death that was none": {func(h *honest) all {
		return bent{honest: h, died: func(ctx context.Context) error { return errors.New("dead") }}
	}, "a death is told"},
	"tells no reason": {func(h *honest) all {
		return bent{honest: h, died: func(ctx context.Context) error { h.Died(ctx); return ctx.Err() }}
	}, "a death is told"},
	"watches only what it started": {func(h *honest) all {
		started := false
		return bent{honest: h, start: func(ctx context.Context) error { started = true; return h.Start(ctx) }, died: func(ctx context.Context) error {
			if !started {
				<-ctx.Done()
				return ctx.Err()
			}
			return h.Died(ctx)
		}}
	}, "a death is told"},
	"a watch is deaf": {func(h *honest) all { return bent{honest: h, died: deaf(h.Died)} }, "a watch ends with its context"},
	"a watch hides that its time is over": {func(h *honest) all {
		return bent{honest: h, died: func(ctx context.Context) error { return errors.New(h.Died(ctx).Error()) }}
	}, "a watch ends with its context"},
	"a watch leaves its goroutine": {func(h *honest) all {
		return bent{honest: h, died: func(ctx context.Context) error {
			go func() { <-testsEnd }()
			return h.Died(ctx)
		}}
	}, "a watch ends with its context"},
	"a watch outlives a stop": {func(h *honest) all {
		stopped := make(chan struct{})
		return bent{honest: h, stop: func(ctx context.Context) error { close(stopped); return h.Stop(ctx) }, died: func(ctx context.Context) error {
			err := h.Died(ctx)
			select {
			case <-stopped:
				<-ctx.Done()
				return ctx.Err()
			default:
				return err
			}
		}}
	}, "a watch ends with a stop"},
	"leaves a goroutine": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error { go func() { <-testsEnd }(); return h.Start(ctx) }}
	}, "nothing is left"},
	"leaves a goroutine when it is cancelled": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error {
			err := h.Stop(ctx)
			if err != nil {
				go func() { <-testsEnd }()
			}
			return err
		}}
	}, "cancelled at random"},
	"leaves a file": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			f, err := os.Open(os.DevNull)
			if err != nil {
				panic(err)
			}
			lost = append(lost, f)
			return h.Probe(ctx)
		}}
	}, "nothing is left"},
	"leaves a child": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error {
			cmd := exec.Command("/proc/self/exe", "-test.run=^$")
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			orphans = append(orphans, cmd)
			return h.Stop(ctx)
		}}
	}, "nothing is left"},
	"forgets a start that was cancelled": {func(h *honest) all {
		cancelled := false
		return bent{honest: h, start: func(ctx context.Context) error {
			err := h.Start(ctx)
			cancelled = err != nil && ctx.Err() != nil
			return err
		}, stop: func(ctx context.Context) error {
			if cancelled {
				return ctx.Err()
			}
			return h.Stop(ctx)
		}}
	}, "cancelled at random"},
	"a start that was cancelled comes later": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			err := h.Start(ctx)
			if ctx.Err() != nil {
				time.AfterFunc(20*time.Millisecond, func() { h.Start(context.Background()) })
				go time.Sleep(40 * time.Millisecond) // a timer alone is no goroutine
			}
			return err
		}}
	}, "cancelled at random"},
	"wears out": {func(h *honest) all {
		return bent{honest: h, start: func(ctx context.Context) error {
			if len(h.m.world.Events()) > 40 {
				return errors.New("I am tired")
			}
			return h.Start(ctx)
		}}
	}, "a life at random"},
	"sees badly after a while": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, detail, err := h.Probe(ctx)
			if len(h.m.world.Events()) > 40 && state == resources.Inactive {
				state = resources.Failed
			}
			return state, detail, err
		}}
	}, "a life at random"},
	"panics": {func(h *honest) all {
		return bent{honest: h, stop: func(ctx context.Context) error { panic("oh") }}
	}, "start and stop"},
	"writes two lines into the log": {func(h *honest) all {
		return bent{honest: h, probe: func(ctx context.Context) (resources.State, string, error) {
			state, _, err := h.Probe(ctx)
			return state, "one\ntwo", err
		}}
	}, "start and stop"},
}

// alone are the checks that count what the whole process holds.
var alone = []string{"nothing is left", "cancelled at random", "a watch ends with its context"}

// TestMutants: each broken resource is found out by the check that is there for it.
func TestMutants(t *testing.T) {
	t.Cleanup(func() {
		close(testsEnd)
		for _, f := range lost {
			f.Close()
		}
		for _, cmd := range orphans {
			_ = cmd.Wait()
		}
	})
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(alone, m.noticed) {
				t.Parallel()
			}
			complaint := verdict(t, m.noticed, subjectOf(time.Second, m.bend))
			if complaint == "" {
				t.Errorf("not noticed by %q", m.noticed)
			}
			t.Log(complaint)
		})
	}
}
