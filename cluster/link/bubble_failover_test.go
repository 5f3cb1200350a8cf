package link_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// TestBubbleStreamLeavesADeadLink: a stream on a link that dies in either direction ends,
// and the next one takes the other link, within half a detection time of the cut.
func TestBubbleStreamLeavesADeadLink(t *testing.T) {
	for name, cuts := range map[string][][2]string{
		"both ways": {{"alpha", "beta"}, {"beta", "alpha"}},
		"there":     {{"alpha", "beta"}},
		"back":      {{"beta", "alpha"}},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := range 16 {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, "alpha", "beta")
					c.network.Delay(time.Millisecond, 3*time.Millisecond)
					alpha := c.links[0]
					serve(c.links[1])
					time.Sleep(detection + time.Duration(phase)*beat/8)
					ctx, cancel := context.WithCancel(t.Context())
					answers := make(chan time.Time, 10000)
					done := make(chan struct{})
					go func() {
						defer close(done)
						for ctx.Err() == nil {
							conn, err := alpha.Dial(ctx, "beta", link.Raft)
							if err != nil {
								continue
							}
							stop := context.AfterFunc(ctx, func() { conn.Close() })
							for echoOver(conn, "x") == nil {
								answers <- time.Now()
								time.Sleep(beat / 8)
							}
							stop()
							conn.Close()
						}
					}()
					time.Sleep(detection)
					for round := range 3 { // the stream is on the last good link each time
						cut := time.Now()
						for _, d := range cuts {
							c.network.CutLink(round%2, d[0], d[1])
						}
						time.Sleep(2 * detection)
						last, longest := cut, time.Duration(0)
						for len(answers) > 0 {
							at := <-answers
							longest, last = max(longest, at.Sub(last)), at
						}
						if longest = max(longest, time.Since(last)); longest > detection/2 {
							t.Errorf("phase %d, link %d: no answer for %s", phase, round%2, longest)
						}
						if longest < beat/4 {
							t.Errorf("the stream was not on the cut link")
						}
						c.network.HealAll()
						time.Sleep(detection / 2)
						for len(answers) > 0 {
							<-answers
						}
					}
					cancel()
					<-done
				})
			}
		})
	}
}

// TestBubbleSlowStreamsStay: neither a single link that is cut for a while, nor a healthy one
// that now and then loses a packet, costs a stream.
func TestBubbleSlowStreamsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		serve(c.links[1])
		conn, err := c.links[0].Dial(t.Context(), "beta", link.Raft)
		if err != nil {
			t.Fatal(err)
		}
		c.network.Loss(0.02)
		for range 30 {
			time.Sleep(detection)
			if err := echoOver(conn, "x"); err != nil {
				t.Fatal(err)
			}
		}
		c.network.Isolate("beta")
		time.Sleep(3 * detection)
		c.network.HealAll()
		if err := echoOver(conn, "after a cut of all links"); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}
