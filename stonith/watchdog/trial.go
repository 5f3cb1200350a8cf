package watchdog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Trial is what Fire works with.
type Trial struct {
	Path    string
	Node    string
	Boot    string
	DataDir string
	Timing  Timing
	// Tell is called about once a second with the time until the host has to be gone.
	Tell func(left time.Duration)

	open func(context.Context) (Device, error)
	now  func() time.Duration
}

// beat is how often the record of a trial is brought up to date: it tells later when the host went down.
const beat = time.Second

// Fire arms the watchdog and does not feed it, so that it resets the host. It returns only if that does not happen: with
// ErrNoReset, or with the reason why it did not come to that. The caller has seen to it that the host holds nothing.
func Fire(ctx context.Context, t Trial) error {
	if t.now == nil {
		t.now = Now
	}
	if t.open == nil {
		t.open = func(ctx context.Context) (Device, error) { return Open(ctx, t.Path) }
	}
	if t.Tell == nil {
		t.Tell = func(time.Duration) {}
	}
	// The record comes first: if it cannot be written, nothing is tried.
	before, err := readTest(t.DataDir)
	if err != nil {
		before = Test{} // the new one takes its place
	}
	test := Test{Verdict: Begun, Node: t.Node, Device: t.Path, Boot: t.Boot, At: time.Now().UTC().Truncate(time.Second)}
	if id, err := Identify(t.Path); err == nil {
		test.Driver = id.Driver
	}
	if err := test.write(t.DataDir); err != nil {
		return err
	}
	dev, err := t.open(ctx)
	if err != nil {
		if before.Verdict == Untested {
			before = test
			before.Verdict, before.Why = Unclear, "the watchdog could not be opened"
		}
		return errors.Join(err, before.write(t.DataDir))
	}
	fed := t.now()
	got, err := fit(dev, t.Timing)
	if err != nil {
		return errors.Join(err, dev.Disarm(), test.end(t.DataDir, Failed, err.Error()))
	}
	fed = max(fed, t.now())
	timing := t.Timing
	timing.Timeout = got
	test.Identity, test.Firmware, test.Timeout = dev.Info().Name, dev.Info().Firmware, got
	due := timing.Late(dev.Info().Pretimeout)
	if err := test.write(t.DataDir); err != nil {
		return errors.Join(err, dev.Disarm())
	}
	return t.wait(ctx, dev, test, fed, due)
}

func (t Trial) wait(ctx context.Context, dev Device, test Test, fed, due time.Duration) error {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		since := t.now() - fed
		if since > due {
			return t.survived(dev, test, since)
		}
		t.Tell(due - since)
		test.Lived = since
		if err := test.write(t.DataDir); err != nil {
			return errors.Join(err, dev.Disarm())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the test was called off: %w", ctx.Err()), dev.Disarm(), test.end(t.DataDir, Unclear, "it was called off"))
		}
	}
}

func (t Trial) survived(dev Device, test Test, since time.Duration) error {
	test.Lived = since
	err := fmt.Errorf("%w: %s was not fed for %s, and its timeout is %s", ErrNoReset, test.Identity, since.Round(time.Millisecond), test.Timeout)
	return errors.Join(err, test.end(t.DataDir, Failed, err.Error()), dev.Disarm())
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
