package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// daemon is what a machine runs when it is switched on. Its log goes straight to a file: through a pipe
// of ours it would wait for us.
func (c *Cluster) daemon(node, boot string) *exec.Cmd {
	cmd := exec.Command(c.executable, "run", "--config", c.config(), "--node", node, "--data-dir", c.data(node), "--key-file", c.keyOf(node),
		"--socket", c.socket(node), "--boot-id", boot, "--log-format", "json")
	cmd.Stdout, cmd.Stderr = c.logs[node], c.logs[node]
	return cmd
}

// DaemonPID is the process of a node's daemon, without what it has started.
func (c *Cluster) DaemonPID(node string) (int, error) {
	pids, err := c.machines[node].Processes()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := bytes.Split(text, []byte{0}); err == nil && len(words) > 1 && string(words[1]) == "run" {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no daemon runs on %s", node)
}

// RestartDaemon ends the daemon of a node with the signal, waits for its end, and starts it
// again in the same boot. What it had started is left alone.
func (c *Cluster) RestartDaemon(ctx context.Context, node string, sig syscall.Signal) error {
	pid, err := c.DaemonPID(node)
	if err != nil {
		return err
	}
	boot := c.Boot(node)
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("%s to the daemon of %s: %w", sig, node, err)
	}
	for {
		now, err := c.DaemonPID(node)
		if err != nil || now != pid {
			break
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("the daemon of %s does not end: %w", node, err)
		}
	}
	cmd := c.daemon(node, boot)
	cmd.Env = append(os.Environ(), redfishsim.MachineVariable+"="+boot)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("restart the daemon of %s: %w", node, err)
	}
	c.restarted = append(c.restarted, cmd)
	return nil
}

// Pause lets everything of a node stand still for a time, and returns how long it was.
func (c *Cluster) Pause(ctx context.Context, node string, d time.Duration) (time.Duration, error) {
	machine := c.machines[node]
	began := time.Now()
	err := machine.Signal(ctx, syscall.SIGSTOP)
	if err == nil {
		err = pause(ctx, d-time.Since(began))
	}
	err = errors.Join(err, machine.Signal(context.WithoutCancel(ctx), syscall.SIGCONT))
	return time.Since(began), err
}

// Failover is how long the parts of one failover took.
type Failover struct{ Detect, Fence, Grant, Start time.Duration }

// Fail lets the holder of the group fail by the signal, and returns when the group runs elsewhere. The
// node comes back by itself: Ready waits for it.
func (c *Cluster) Fail(ctx context.Context, at Placement, sig syscall.Signal) (Failover, error) {
	ctx, cancel := context.WithTimeout(ctx, within(c.detection))
	defer cancel()
	fault := time.Now()
	hit, err := c.Strike(ctx, at.Holder, sig)
	defer hit.release()
	if err != nil {
		return Failover{}, err
	}
	rec := newRecorder(at.Holder, at.Boot, Holder{Node: at.Holder, Token: at.Token}, fault, Moment{})
	err = c.Events.Each(ctx, func(e Event) bool {
		rec.record(e)
		return rec.seen[momentStarted]
	})
	if err != nil {
		return Failover{}, fmt.Errorf("failover of %s: %w", at.Holder, err)
	}
	moment := map[string]time.Duration{}
	for _, m := range rec.moments {
		moment[m.What] = m.At
	}
	return Failover{
		Detect: moment[momentDead],
		Fence:  moment[momentProven] - moment[momentDead],
		Grant:  moment[momentGranted] - moment[momentProven],
		Start:  moment[momentStarted] - moment[momentGranted],
	}, nil
}

// Socket is where the node's daemon answers its operator.
func (c *Cluster) Socket(node string) string { return c.socket(node) }

// KeyFile is a node's own.
func (c *Cluster) KeyFile(node string) string { return c.keyOf(node) }

// Config is the path of the cluster's configuration file.
func (c *Cluster) Config() string { return c.config() }

// BMCPassword is the path of the file with the BMCs' password.
func (c *Cluster) BMCPassword() string { return c.bmcPassword() }

// Folder holds everything of the cluster: logs, data, sockets.
func (c *Cluster) Folder() string { return c.dir }
