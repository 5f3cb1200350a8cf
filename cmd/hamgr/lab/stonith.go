package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/agents"
	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/fake"
	"github.com/hamgr/hamgr/stonith"
)

const (
	bmcName = oldHolder + "-bmc"
	// lag is how long the obedient BMC takes, and settle how long off must last.
	lag, settle = 20 * time.Millisecond, 50 * time.Millisecond
	// patience is how long the engine reads back at a BMC that ignores it.
	patience = 300 * time.Millisecond
)

// stonithStory: alpha is paused and nobody can tell whether it will write again; so its power is cut before beta mounts.
func stonithStory(ctx context.Context, _ bool) ([]Scene, error) {
	ignored, err := ignoredScene(ctx)
	if err != nil {
		return nil, err
	}
	obeyed, err := obeyedScene(ctx)
	if err != nil {
		return nil, err
	}
	return []Scene{ignored, obeyed}, nil
}

// ignoredScene: the BMC answers "ok" and does nothing.
func ignoredScene(ctx context.Context) (Scene, error) {
	for patience := patience; ; patience *= 2 {
		f, err := newFencing(ctx, "The BMC accepts the command, and does nothing.", bmc.Behavior{Command: "ignore"})
		if err != nil {
			return Scene{}, err
		}
		proof, err := f.off(ctx, patience)
		if failure, ok := errors.AsType[*stonith.Failure](err); ok && !failure.Commanded && ctx.Err() == nil && patience < time.Minute {
			continue // a machine so busy that the command did not get out
		}
		if err := f.takeOver(ctx, proof, err); err != nil {
			return Scene{}, err
		}
		f.world.Thaw(oldHolder)
		f.scene.step(oldHolder, "goes on", "it had power all the time")
		if err := f.put(oldHolder, oldToken, "a2"); err != nil {
			return Scene{}, err
		}
		return f.end("No proof, no takeover: the group stands still, which is an outage. With the takeover there would be two writers, which is a loss. hamgr goes on trying, and raises the alarm.")
	}
}

// obeyedScene: the same BMC, mended.
func obeyedScene(ctx context.Context) (Scene, error) {
	f, err := newFencing(ctx, "The BMC obeys, a moment later.", bmc.Behavior{Lag: lag})
	if err != nil {
		return Scene{}, err
	}
	proof, err := f.off(ctx, 10*time.Second)
	if err := f.takeOver(ctx, proof, err); err != nil {
		return Scene{}, err
	}
	f.world.Thaw(oldHolder)
	_, _, err = f.held.Probe(ctx)
	if !errors.Is(err, fake.ErrPoweredOff) {
		return Scene{}, fmt.Errorf("%s still runs after its power was read back off: %w", oldHolder, err)
	}
	f.scene.step(oldHolder, "goes on", "no: nothing of it is left to write a2")
	return f.end("Off was read, not believed, and only then did beta mount. The storage never had to compare anything.")
}

// fencing is the stage with a BMC that has alpha's power.
type fencing struct {
	*stage
	device *bmc.Device
	held   resources.Resource
}

func newFencing(ctx context.Context, title string, behavior bmc.Behavior) (*fencing, error) {
	f := &fencing{stage: newStage(title), device: bmc.New()}
	f.device.OnPower = func(_ string, state agents.PowerState) {
		if state == agents.Off {
			f.world.PowerOff(oldHolder)
		}
	}
	f.device.Behave(behavior)
	var err error
	if f.held, err = f.begin(ctx, f.put); err != nil {
		return nil, err
	}
	f.freeze(oldHolder, "just before it writes a2; from outside it looks dead")
	return f, nil
}

// off has hamgr's fencing engine cut alpha's power, and tells each step that it takes.
func (f *fencing) off(ctx context.Context, patience time.Duration) (stonith.Proof, error) {
	engine := stonith.New(nil)
	proof, err := engine.Off(ctx, stonith.Order{
		Target: stonith.Target{
			Node: oldHolder, Boot: oldHolder + "-1",
			Levels: [][]stonith.Device{{{
				Name: bmcName, Agent: "fake", Plugs: []string{""}, Timeout: patience, Settle: settle, Sees: agents.SeesMachine,
				Open: func() (agents.Agent, error) { return f.device.Open() },
			}}},
		},
		Op:   1,
		Gate: func(context.Context) error { return nil }, // in a cluster: does the committed order still stand?
		Observe: func(s stonith.Step) {
			switch s.What {
			case "read":
				f.scene.step(bmcName, "reads", "%s", s.State)
			case "off":
				f.scene.step(bmcName, "ordered", "off")
			}
		},
	})
	err = errors.Join(err, engine.Wait(ctx))
	f.answers()
	return proof, err
}

// answers tells with each order what the BMC answered to it, from the BMC's own record.
func (f *fencing) answers() {
	var answers []error
	for _, c := range f.device.Calls() {
		if c.Verb == "off" {
			answers = append(answers, c.Err)
		}
	}
	for i := range f.scene.Steps {
		if s := &f.scene.Steps[i]; s.What == "ordered" && len(answers) > 0 {
			answer := "ok"
			if answers[0] != nil {
				answer = answers[0].Error()
			}
			s.Text += "; it answers: " + answer
			answers = answers[1:]
		}
	}
}

// takeOver mounts on beta if, and only if, there is a proof.
func (f *fencing) takeOver(ctx context.Context, proof stonith.Proof, err error) error {
	failure, failed := errors.AsType[*stonith.Failure](err)
	switch {
	case failed && len(failure.Levels) > 0 && len(failure.Levels[0].Devices) > 0:
		for _, p := range failure.Levels[0].Devices[0].Plugs {
			f.scene.step("stonith", "no proof", "%s still %s", bmcName, p)
		}
		f.scene.step(newHolder, "waits", "it mounts nothing")
		return nil
	case err != nil:
		return err
	}
	for _, p := range proof.Plugs {
		f.scene.step("stonith", "proof", "%s: read %s twice", p.Device, p.Detail)
	}
	if _, err := f.start(ctx, newHolder, newToken); err != nil {
		return err
	}
	f.scene.wrote(newHolder, "starts", newToken, "it mounts the storage")
	return f.put(newHolder, newToken, "b1")
}

// end judges.
func (f *fencing) end(outcome string) (Scene, error) {
	breaches, late := f.judge(), f.late()
	f.scene.Outcome = fmt.Sprintf("%s The storage has %s.", outcome, f.contents())
	if breaches > 0 || late > 0 {
		return Scene{}, fmt.Errorf("two writers: the storage has %s; %s", f.contents(), f.world.Violations())
	}
	return *f.scene, nil
}
