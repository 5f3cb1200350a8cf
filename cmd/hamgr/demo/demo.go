// Package demo shows a failover on one machine: three daemons as real processes, a BMC simulator
// for each, one service that writes to a shared ledger, and a node that fails.
//
// It judges by the ledger alone and does not trust the nodes. It is a laboratory beside the
// product: nothing of the product uses it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Options say what is to be shown.
type Options struct {
	Scenario      Scenario
	DetectionTime time.Duration
	Executable    string // of hamgr itself
	// Parent is where the demo's folder is made; see DefaultParent.
	Parent string
	// Keep leaves the folder, with the configuration, the logs and the ledger.
	Keep bool
	// Progress receives what happens, as it happens.
	Progress io.Writer
}

const (
	// readyWithin bounds the start of three daemons until the group runs.
	readyWithin = 30 * time.Second
	// attempts is how often a cluster is built until its holder has the role that the scenario asks for.
	attempts = 5
	// linger is how long the service runs before the fault and after everything, so that
	// the ledger shows who wrote when, and late writes have the time to come.
	linger = 500 * time.Millisecond
)

// Run shows one scenario and reports how it ended. It leaves no process behind, and no
// file unless asked to, also when ctx ends early.
func Run(ctx context.Context, opts Options) Report {
	r := Report{Schema: Schema, Scenario: opts.Scenario.Name, DetectionTimeMS: opts.DetectionTime.Milliseconds()}
	say := func(format string, args ...any) { fmt.Fprintf(opts.Progress, format+"\n", args...) }
	cluster, at, err := build(ctx, opts, say)
	if err != nil {
		r.Wrong = append(r.Wrong, err.Error())
		return r
	}
	r.Old = Holder{Node: at.Holder, Token: at.Token}
	r.Coordinator[0] = at.Coordinator

	err = play(ctx, opts.Scenario, cluster, at, &r, say)
	if err != nil {
		r.Wrong = append(r.Wrong, err.Error())
		say("\n%s", cluster.Events.Tail(15))
	}
	// The last writes are made now: what follows reads the ledger as it will stay.
	if err := cluster.Kill(); err != nil {
		r.Wrong = append(r.Wrong, err.Error())
	}
	r.figures()
	judge(opts.Scenario, cluster, &r)
	r.OK = len(r.Wrong) == 0
	if opts.Keep {
		say("everything of it stays in %s", cluster.dir)
	} else if err := cluster.Remove(); err != nil {
		r.OK, r.Wrong = false, append(r.Wrong, err.Error())
	}
	return r
}

// build starts clusters until one has the role for its holder that the scenario wants.
func build(ctx context.Context, opts Options, say func(string, ...any)) (*Cluster, Placement, error) {
	for range attempts {
		cluster, err := StartCluster(ctx, ClusterConfig{
			Executable: opts.Executable, Parent: opts.Parent,
			DetectionTime: opts.DetectionTime, Prefer: opts.Scenario.prefer(),
		})
		if err != nil {
			return nil, Placement{}, err
		}
		say("three nodes on %s-%d, one BMC each; detection time %s; folder %s",
			cluster.address(nodeNames[0]), len(nodeNames), opts.DetectionTime, cluster.dir)
		at, err := cluster.Ready(ctx, readyWithin)
		if err != nil {
			say("\n%s", cluster.Events.Tail(15))
			return nil, Placement{}, errors.Join(err, cluster.Kill(), cluster.Remove())
		}
		say("%s coordinates; %s runs on %s with token %d and writes to the ledger", at.Coordinator, groupName, at.Holder, at.Token)
		if (at.Coordinator == at.Holder) == opts.Scenario.coordinates {
			return cluster, at, nil
		}
		say("that is not the role for this scenario: once more")
		if err := errors.Join(cluster.Kill(), cluster.Remove()); err != nil {
			return nil, Placement{}, err
		}
	}
	return nil, Placement{}, fmt.Errorf("no cluster had the roles that the scenario needs, in %d attempts", attempts)
}

// play lets the node fail and watches until it is back.
func play(ctx context.Context, s Scenario, c *Cluster, at Placement, r *Report, say func(string, ...any)) error {
	if err := pause(ctx, linger); err != nil {
		return err
	}
	if s.survivor {
		if err := c.StartSurvivor(ctx, at); err != nil {
			return err
		}
	}
	fault := time.Now()
	hit, first, err := s.begin(ctx, c, at)
	defer hit.release()
	if err != nil {
		return err
	}
	rec := newRecorder(at.Holder, at.Boot, r.Old, fault, first)
	defer func() { r.Timeline = rec.moments }()
	say("\n%s", rec.moments[0])

	limit, cancel := context.WithTimeout(ctx, within(c.detection))
	defer cancel()
	var wakeErr error
	err = c.Events.Each(limit, func(e Event) bool {
		m, ok := rec.record(e)
		if !ok {
			return false
		}
		say("%s", m)
		switch m.What {
		case momentGranted:
			r.New = Holder{Node: e.Text("node"), Token: e.Uint("token")}
		case momentStarted:
			if s.wakes {
				wakeErr = wake(hit, say)
			}
		}
		if wakeErr != nil {
			return true
		}
		return rec.seen[momentStarted] && (s.moves || rec.seen[momentReturned])
	})
	switch {
	case wakeErr != nil:
		return wakeErr
	case err != nil:
		return fmt.Errorf("the failover did not come to its end: %w", err)
	}
	if s.survivor {
		if err := c.AwaitRefusal(limit); err != nil {
			return err
		}
	}
	if err := pause(ctx, linger); err != nil {
		return err
	}
	after, err := c.Ready(ctx, within(c.detection))
	if err != nil {
		return fmt.Errorf("after the failover: %w", err)
	}
	r.Coordinator[1] = after.Coordinator
	r.Proof = after.Proof
	if s.moves && rec.seen[momentStopped] {
		r.Proof = fmt.Sprintf("%s reported a clean stop of token %d", at.Holder, at.Token)
	}
	say("the cluster is whole again; %s coordinates", after.Coordinator)
	return nil
}

// begin does to the node what the scenario wants, and tells it.
func (s Scenario) begin(ctx context.Context, c *Cluster, at Placement) (processes, Moment, error) {
	if s.moves {
		to := s.target(at.Holder)
		return nil, Moment{What: momentOrdered, Detail: fmt.Sprintf("%s from %s to %s", groupName, at.Holder, to)}, c.Move(ctx, at.Holder, to)
	}
	hit, err := c.Strike(ctx, at.Holder, s.signal)
	return hit, Moment{What: momentFault, Detail: at.Holder + ": " + fmt.Sprintf(s.what, len(hit))}, err
}

// wake tells the old machine's processes to go on. None can: they died with the machine's power.
func wake(hit processes, say func(string, ...any)) error {
	if n := hit.signal(syscall.SIGCONT); n > 0 {
		return fmt.Errorf("%d processes of the old machine went on after the takeover", n)
	}
	say("%10s  %-14s nobody was left to go on", "", "SIGCONT")
	return nil
}

// judge adds what the ledger says, and what it says against the run.
func judge(s Scenario, c *Cluster, r *Report) {
	wrong := func(format string, args ...any) { r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...)) }
	entries, err := ReadLedger(c.ledger())
	if err != nil {
		wrong("ledger: %v", err)
		return
	}
	stale, err := ReadLedger(c.refused())
	if err != nil {
		wrong("refused writes: %v", err)
		return
	}
	v := Judge(entries)
	r.Writes, r.Overlap, r.Refused, r.WriteGap = v.Writes, len(v.Overlaps), len(stale), int64(v.Gap/uint64(time.Millisecond))
	for _, e := range v.Overlaps[:min(3, len(v.Overlaps))] {
		wrong("overlapping write: %s", e)
	}
	for _, e := range v.Lost[:min(3, len(v.Lost))] {
		wrong("a write is missing or repeated before: %s", e)
	}
	if r.New.Token <= r.Old.Token || r.New.Node == r.Old.Node {
		wrong("no takeover: %s with token %d, then %s with token %d", r.Old.Node, r.Old.Token, r.New.Node, r.New.Token)
	}
	if !wrote(entries, r.Old) || !wrote(entries, r.New) {
		wrong("not both holders are in the ledger")
	}
	if r.Proof == "" {
		wrong("no proof is known that %s could not write", r.Old.Node)
	}
	if s.survivor && r.Refused == 0 {
		wrong("the guard refused nothing")
	}
}

func wrote(entries []Entry, h Holder) bool {
	for _, e := range entries {
		if e.Node == h.Node && e.Token == h.Token {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// survivor is the writer that the power switch does not reach.
func survivor(l layout, exe string, at Placement) *exec.Cmd {
	argv := append(l.writerCommand(exe), "--stubborn")
	cmd := exec.Command(argv[0], argv[1:]...)
	// Its boot is its own, because it dies with none of the machines.
	cmd.Env = append(os.Environ(),
		fmt.Sprintf("HAMGR_TOKEN=%d", at.Token), "HAMGR_NODE="+at.Holder, "HAMGR_BOOT="+at.Boot+"-survivor", "HAMGR_GROUP="+groupName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}
