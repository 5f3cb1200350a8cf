package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
)

// TestDeafNodeIsFenced: a node whose log has failed never hears of what was granted to it last. It knows no coordinator any
// more, so that its greetings come through a third node, and are no sign of a cut.
func TestDeafNodeIsFenced(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t)
			o.leads = true
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan struct{})
			go func() { defer close(done); o.Run(ctx) }()
			off := func() (off bool) { o.set(func() { off = len(o.shots) > 0; o.talking["beta"] = !off }); return off }
			for ctx.Err() == nil && !off() {
				_, _ = o.Hello(ctx, "beta", coordinator.Hello{Boot: "beta-1", Applied: 1, Relayed: true, Deaf: deaf})
				time.Sleep(500 * time.Millisecond)
			}
			<-done
			if fenced := o.state().Groups["db"].Released != nil; fenced != deaf {
				t.Errorf("deaf %t: fenced %t", deaf, fenced)
			}
		})
	}
}
