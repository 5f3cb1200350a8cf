package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// TestUnarmedIsNeverAsked: a node that works no fence device does not get an operation, however often the others fail,
// and reads no device.
func TestUnarmedIsNeverAsked(t *testing.T) {
	for _, unarmed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			asked, read := 0, 0
			others := counting{read: &read, delegate: delegate{
				off: func(context.Context, state.Operation) (stonith.Proof, error) {
					asked++
					return stonith.Proof{}, errors.New("no way to the device")
				},
				on: func(context.Context, state.Operation) error { return nil },
			}}
			levels := [][]stonith.Device{{{Name: "bmc", Plugs: []string{""}, Timeout: 5 * time.Second}}}
			o := delegating(t, levels, others.delegate)
			o.elsewhere = others
			o.seed.Digest = "2"
			o.seed.Nodes = append([]state.ConfigNode{}, o.seed.Nodes...)
			o.seed.Nodes[2].Role = state.Witness
			o.must(t, state.Command{Configure: &o.seed})
			o.open(o.seed)
			o.set(func() { o.leads = true })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() { defer close(done); o.Run(ctx) }()
			hello := coordinator.Hello{Boot: "gamma-1", Unarmed: unarmed}
			for range 240 {
				hello.Applied = o.state().Applied
				if _, err := o.Hello(ctx, "gamma", hello); err != nil {
					t.Fatal(err)
				}
				time.Sleep(250 * time.Millisecond)
			}
			if _, err := o.TestDevices(ctx, ""); err != nil {
				t.Fatal(err)
			}
			cancel()
			<-done
			if got := asked > 0; got == unarmed {
				t.Errorf("unarmed %v: asked to shoot %d times", unarmed, asked)
			}
			if got := read > 0; got == unarmed {
				t.Errorf("unarmed %v: asked to read %d times", unarmed, read)
			}
			if len(o.shots) < 2 {
				t.Errorf("unarmed %v: the coordinator tried %d times", unarmed, len(o.shots))
			}
		})
	}
}

// counting are the other nodes, with a count of how often a device was read.
type counting struct {
	delegate
	read *int
}

func (c counting) Check(context.Context, string, string, stonith.Machine) ([]stonith.Health, error) {
	*c.read++
	return nil, nil
}
