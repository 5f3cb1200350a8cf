package snmp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// relay passes datagrams between one client and a device, and loses, doubles and reorders
// some, each way.
func relay(t testing.TB, device string, loss float64) string {
	front := listen(t)
	back, err := net.Dial("udp4", device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { back.Close() })
	var client atomic.Value
	pass := func(read func(b []byte) (int, error), write func(b []byte)) {
		b := make([]byte, 65535)
		var held []byte
		for {
			n, err := read(b)
			if err != nil {
				return
			}
			d := append([]byte(nil), b[:n]...)
			switch r := rand.Float64() / loss; {
			case r < 1:
				continue
			case r < 1.3:
				write(d) // twice
			case r < 1.6:
				held, d = d, held // later, behind the next one
			}
			if d != nil {
				write(d)
			}
			if held != nil && rand.IntN(2) == 0 {
				write(held)
				held = nil
			}
		}
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		pass(func(b []byte) (int, error) {
			n, from, err := front.ReadFrom(b)
			if err == nil {
				client.Store(from)
			}
			return n, err
		}, func(b []byte) { back.Write(b) })
	})
	wait.Go(func() {
		pass(back.Read, func(b []byte) {
			if to, ok := client.Load().(net.Addr); ok {
				front.WriteTo(b, to)
			}
		})
	})
	t.Cleanup(func() { front.Close(); back.Close(); wait.Wait() })
	return front.LocalAddr().String()
}

// TestLoss fences through a bad network: never a false off, and at 10 % over 99 % are done in
// the time that a device has (B09).
func TestLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loss        float64
		fences      int
		mustSucceed float64
		budget      time.Duration
	}{{0.1, 200, 0.99, 10 * time.Second}, {0.3, 48, 0, 6 * time.Second}} {
		t.Run(fmt.Sprint(c.loss), func(t *testing.T) {
			t.Parallel()
			const at = 48
			p := snmppeer.Start(t, "sentry3", func(c *snmppeer.Config) { c.Outlets = at })
			var done, failed atomic.Int32
			var wait sync.WaitGroup
			work := make(chan int)
			var mu sync.Mutex // the peer's methods are for one goroutine
			for n := range at {
				address := relay(t, p.Address(), c.loss)
				wait.Go(func() {
					for version := range work {
						if err := fenceOnce(p, &mu, n+1, address, version, c.budget); err != nil {
							t.Log(err)
							failed.Add(1)
						} else {
							done.Add(1)
						}
					}
				})
			}
			for i := range c.fences {
				work <- i
			}
			close(work)
			wait.Wait()
			t.Logf("%d done, %d failed", done.Load(), failed.Load())
			if float64(done.Load()) < c.mustSucceed*float64(c.fences) {
				t.Errorf("only %d of %d done", done.Load(), c.fences)
			}
		})
	}
}

// fenceOnce does what the engine does: it reads, orders off, and reads until off.
func fenceOnce(p *snmppeer.PDU, mu *sync.Mutex, n int, address string, version int, budget time.Duration) error {
	truth := func() string {
		mu.Lock()
		defer mu.Unlock()
		return p.Outlet(n)
	}
	if truth() == "off" {
		mu.Lock()
		p.SetOutlet(n, "on")
		mu.Unlock()
	}
	o := with2c(address, "private")
	if version%2 == 1 {
		o = with3(address, snmppeer.Fencer)
	}
	h, err := o.Open(nil)
	if err != nil {
		return err
	}
	defer h.Close(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	plug := fmt.Sprintf("1.1.%d=outlet%d", n, n)
	for ctx.Err() == nil {
		r, err := h.Status(ctx, plug)
		switch {
		case err == nil && r.State == agents.On:
			h.Off(ctx, plug)
		case r.State == agents.Off && truth() != "off":
			panic("a false off")
		case err == nil && r.State == agents.Off:
			return nil
		}
	}
	return fmt.Errorf("outlet %d: %w", n, ctx.Err())
}
