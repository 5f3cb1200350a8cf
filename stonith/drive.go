package stonith

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hamgr/hamgr/agents"
)

const (
	// The pause between reads grows from pollFirst to pollLast, or to pollError
	// while the device answers with errors.
	pollFirst = 2 * time.Millisecond
	pollLast  = 250 * time.Millisecond
	pollError = time.Second
	// A command is sent again when the plug still reads the opposite after resendFirst, then
	// after each resendNext: some BMCs drop a command while they are busy.
	resendFirst = 2 * time.Second
	resendNext  = 5 * time.Second
)

// drive brings the plugs of one device to the goal. They are handled one after the
// other through one handle, but step by step together: all are read, all that need
// it are commanded, all are read back.
type drive struct {
	op        *operation
	level     int
	device    Device
	second    *consultation
	session   *session
	asked     bool // for the state of a plug
	log       *slog.Logger
	plugs     []*plug
	commanded bool
	failed    *DeviceFailure // nil if the goal was reached
	took      time.Duration  // without the waits for the level's other devices
}

// plug is what is known of one plug in this operation.
type plug struct {
	name string
	last agents.Reading
	err  error // of the last read; then last is Unknown
	seen bool  // read at least once, or tried
	took time.Duration
	// lasting is how many reads in a row failed in a way that asking again does not change.
	lasting int
	named   bool // the device named the target when last asked, or need not be asked
	// since is the moment after the first of an unbroken row of reads that gave the
	// goal; zero if the last read did not give it.
	since      time.Time
	commands   int
	ordered    time.Time // when the last command was sent
	commandErr error
}

func newDrive(op *operation, level int, device Device, second *consultation) *drive {
	d := &drive{
		op: op, level: level, device: device, second: second,
		log: op.log.With("device", device.Name, "fence_level", level),
	}
	for _, name := range device.Plugs {
		d.plugs = append(d.plugs, &plug{name: name, err: errNoAnswer})
	}
	return d
}

// drive takes the device's share of time at most, the waits for its turn included. If it is done
// before the level's other devices are off, it looks again when they are: ctx is the level's, and
// lasts as long as the slowest of them has.
func (d *drive) drive(ctx context.Context) {
	err := d.share(ctx)
	for err == nil && d.second.overtaken(ctx, d) {
		err = d.run(ctx)
	}
	if err != nil {
		d.second.lose()
		d.failed = d.failure(err)
		return
	}
	for _, p := range d.plugs {
		d.log.Info(d.op.goal.readBack, "plug", p.name, "state", p.last.State.String(),
			"commands", p.commands, "took", d.took)
	}
}

func (d *drive) share(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.device.Timeout, errOutOfTime)
	defer cancel()
	return d.run(ctx)
}

// run returns nil only when the goal is reached at every plug.
func (d *drive) run(ctx context.Context) error {
	begun := time.Now()
	defer func() { d.took += time.Since(begun) }()
	if len(d.plugs) == 0 {
		return fmt.Errorf("no plug: %w", ErrNoDevices)
	}
	s, err := d.op.fencer.join(ctx, d.device, true, nil)
	if err != nil {
		return err
	}
	defer s.end()
	d.session = s
	if err := d.identify(ctx, d.plugs); err != nil {
		return err
	}
	for pause := pollFirst; ; {
		failing, err := d.round(ctx)
		if err != nil {
			return err
		}
		if latest, all := d.reached(); all {
			lasts, err := d.confirm(ctx, latest)
			if lasts || err != nil {
				return err
			}
			pause = pollFirst
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		limit := pollLast
		if failing {
			limit = pollError
		}
		pause = min(2*pause, limit)
	}
}

// identify refuses a device that powers another machine, before anything is asked of it or believed.
func (d *drive) identify(ctx context.Context, plugs []*plug) error {
	until := time.Now().Add(identityShare(d.device))
	for _, p := range plugs {
		err := d.session.identify(ctx, d.op.order.Machine, time.Until(until), p.name)
		p.named = err == nil
		if err == nil {
			continue
		}
		if over := d.over(ctx, err); over != nil {
			return over
		}
		d.log.Warn("identity not confirmed", "plug", p.name, "err", err)
		d.op.observe(Step{Level: d.level, Device: d.device.Name, Plug: p.name, What: "identity", Err: err})
		if errors.Is(err, agents.ErrIdentity) {
			return err
		}
	}
	return nil
}

// identifyAgain asks those who named the target before. Who answered in the beginning need not be who
// answers now: two BMCs may have one address.
func (d *drive) identifyAgain(ctx context.Context, plugs ...*plug) error {
	return d.identify(ctx, slices.DeleteFunc(slices.Clone(plugs), func(p *plug) bool { return !p.named }))
}

// round reads the plugs that are not at the goal, and then commands those for which it is
// time: first all reads, then all commands, so that feeds go together.
func (d *drive) round(ctx context.Context) (failing bool, err error) {
	for _, p := range d.plugs {
		if !p.since.IsZero() {
			continue
		}
		if err := d.read(ctx, p, false); err != nil {
			return false, err
		}
		failing = failing || p.err != nil
	}
	if wait, err := d.hopeless(); wait || err != nil {
		return failing, err
	}
	for _, p := range d.plugs {
		if !d.due(p) {
			continue
		}
		if p.commands > 0 { // some time has passed since the device named the target
			if err := d.identifyAgain(ctx, p); err != nil {
				return false, err
			}
		}
		if err := d.command(ctx, p); err != nil {
			return false, err
		}
	}
	return failing, nil
}

// hopeless ends the work on a device at which nothing was done yet, when a plug answered twice in a row
// with an error that only an operator can change: the next level gets its turn sooner. It
// may have been a mistake of the device once, so after the first no command goes out, but
// another read. Once one has gone out, reading goes on to the end: it may have been obeyed.
func (d *drive) hopeless() (wait bool, err error) {
	if d.commanded {
		return false, nil
	}
	for _, p := range d.plugs {
		if p.lasting >= 2 {
			return false, errLasting
		}
		wait = wait || p.lasting > 0
	}
	return wait, nil
}

// reached reports whether every plug was at the goal when last read, and since when
// the latest of them.
func (d *drive) reached() (latest time.Time, all bool) {
	for _, p := range d.plugs {
		if p.since.IsZero() {
			return time.Time{}, false
		}
		if p.since.After(latest) {
			latest = p.since
		}
	}
	return latest, true
}

// confirm waits until the settle time is over since latest, and reads every plug
// once more, if the goal asks for that. A plug that left the goal has to begin anew.
func (d *drive) confirm(ctx context.Context, latest time.Time) (lasts bool, err error) {
	if !d.op.goal.twice {
		return true, nil
	}
	d.second.reached(d, latest)
	defer func() {
		if !lasts {
			d.second.left(d)
		}
	}()
	if err := d.identifyAgain(ctx, d.plugs...); err != nil {
		return false, err
	}
	if err := sleep(ctx, time.Until(d.second.due(d))); err != nil {
		return false, err
	}
	asked := time.Now()
	for _, p := range d.plugs {
		if err := d.read(ctx, p, true); err != nil {
			return false, err
		}
	}
	if _, lasts = d.reached(); lasts {
		d.second.confirm(d, asked)
	}
	return lasts, nil
}

// read asks the device for the plug's state. A device that answers with an error is
// asked again later, so the error returned is only what ends the drive. Told is what
// is new, and what confirms.
func (d *drive) read(ctx context.Context, p *plug, confirming bool) error {
	d.asked = true
	begun := time.Now()
	r, err := d.session.status(ctx, p.name)
	if err := d.over(ctx, err); err != nil {
		return err
	}
	if agents.Lasting(err) {
		p.lasting++
	} else {
		p.lasting = 0
	}
	news := confirming || !p.seen || r != p.last || (err == nil) != (p.err == nil)
	p.last, p.err, p.seen, p.took = r, err, true, time.Since(begun)
	if r.State != d.op.goal.want {
		p.since = time.Time{}
	} else if p.since.IsZero() {
		p.since = time.Now()
	}
	if news {
		d.tell(p)
	}
	return nil
}

// due decides whether a command goes out to the plug now. Silence is no reason to
// repeat one: the command may be at work.
func (d *drive) due(p *plug) bool {
	opposite := p.err == nil && p.last.State == d.op.goal.opposite
	wait := resendNext
	switch {
	case !p.since.IsZero():
		return false
	case p.commands == 0:
		return opposite || d.op.goal.blind
	case p.commands == 1:
		wait = resendFirst
	}
	return opposite && time.Since(p.ordered) >= wait
}

// command asks the gate and sends the command, in one turn, so that nothing comes between
// the two. What the device answers is a hint for the operator; what it did is learned by reading.
func (d *drive) command(ctx context.Context, p *plug) error {
	if err := d.session.take(ctx); err != nil {
		return err
	}
	if err := d.op.pass(ctx); err != nil {
		d.session.turns.release()
		return err
	}
	d.commanded = true
	d.op.commanded.Store(true)
	p.commands++
	p.ordered = time.Now()
	d.log.Info(d.op.goal.ordered, "plug", p.name, "attempt", p.commands)
	d.op.observe(Step{Level: d.level, Device: d.device.Name, Plug: p.name, What: d.op.goal.verb, State: p.last.State})
	err := d.session.command(ctx, d.op.goal, p.name)
	if err != nil && ctx.Err() != nil {
		err = errNoAnswer
	}
	p.commandErr = err
	if err != nil {
		d.log.Warn("command answered with an error", "plug", p.name, "err", err)
		d.op.observe(Step{
			Level: d.level, Device: d.device.Name, Plug: p.name, What: "error", State: p.last.State,
			Err: fmt.Errorf("%s: %w", d.op.goal.verb, err), Took: time.Since(p.ordered),
		})
	}
	return d.over(ctx, err)
}

// over gives the reason why the drive cannot go on, nil while it can.
func (d *drive) over(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*noTurnError](err); ok || errors.Is(err, errLost) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// tell reports the plug's last read.
func (d *drive) tell(p *plug) {
	step := Step{
		Level: d.level, Device: d.device.Name, Plug: p.name, What: "read",
		State: p.last.State, Detail: p.last.Detail, Took: p.took,
	}
	if p.err != nil {
		step.What, step.Err = "error", fmt.Errorf("power status: %w", p.err)
	}
	d.log.Debug("power state read", "plug", p.name, "state", p.last.State.String(),
		"detail", p.last.Detail, "took", p.took, "err", p.err)
	d.op.observe(step)
}
