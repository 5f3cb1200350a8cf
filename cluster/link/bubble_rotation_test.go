package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// detection is the default of link.
const detection = 3 * time.Second

// watchContact samples every contact age until the returned function is called, which
// gives the highest.
func (c *cluster) watchContact() (highest func() time.Duration) {
	done, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var top time.Duration
		for {
			select {
			case <-done:
				result <- top
				return
			case <-time.After(detection / 100):
			}
			for _, l := range c.links {
				for _, n := range c.nodes {
					if n.Name != l.Self() {
						age := contactAge(l, n.Name)
						if age < 0 {
							age = time.Hour
						}
						top = max(top, age)
					}
				}
			}
		}
	}()
	return func() time.Duration { close(done); return <-result }
}

// open tells whether a conn that nobody writes to is still open.
func open(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

var orders = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// TestBubbleKeyRotation replaces the cluster key, node by node, in all orders.
func TestBubbleKeyRotation(t *testing.T) {
	old, fresh := testKey(1), testKey(2)
	steps := []link.KeyRing{{old, fresh}, {fresh, old}, {fresh}}
	for first := range orders {
		for _, second := range []int{first, (first + 3) % len(orders)} { // each step in each order twice
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "alpha", "beta", "gamma")
				for i, l := range c.links {
					l.Stop()
					c.links[i] = c.start(l.Self(), func(cfg *link.Config) { cfg.Keys = link.KeyRing{old} })
					serve(c.links[i])
				}
				time.Sleep(time.Second)
				highest := c.watchContact()
				dial := func() (all []net.Conn) {
					for _, l := range c.links {
						for _, n := range c.nodes {
							if n.Name == l.Self() {
								continue
							}
							conn, err := l.Dial(t.Context(), n.Name, link.Raft)
							if err != nil {
								t.Fatalf("%s to %s with keys %v: %v", l.Self(), n.Name, l.Keys(), err)
							}
							if err := echoOver(conn, "x"); err != nil {
								t.Fatal(err)
							}
							all = append(all, conn)
						}
					}
					return all
				}
				conns := dial() // with the old key
				for step, ring := range steps {
					if step == 2 {
						for _, h := range c.health() {
							if h.Key != fresh.Fingerprint() {
								t.Errorf("%s still uses key %s", h.Node, h.Key)
							}
						}
					}
					for _, i := range orders[[]int{first, second, (first + second) % 6}[step]] {
						if err := c.links[i].SetKeys(ring); err != nil {
							t.Fatal(err)
						}
						for _, conn := range dial() {
							conn.Close()
						}
						time.Sleep(detection / 10)
					}
					for _, conn := range conns {
						if open(conn) != (step < 2) {
							t.Errorf("step %d: a conn with the old key is open: %v", step, open(conn))
						}
					}
				}
				for _, conn := range append(conns, dial()...) {
					conn.Close()
				}
				if top := highest(); top > detection/2 {
					t.Errorf("a contact was %s old", top)
				}
			})
		}
	}
}

func (c *cluster) health() (all []link.PeerHealth) {
	for _, l := range c.links {
		all = append(all, l.Health()...)
	}
	return all
}

// TestBubbleDroppedKeyLocksOut: who has only the key that was dropped is nobody, also in the
// place of a node, and also if it took that node's place before.
func TestBubbleDroppedKeyLocksOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, fresh := testKey(1), testKey(2)
		c := newCluster(t, "alpha", "beta", "gamma")
		with := func(ring ...link.Key) func(*link.Config) {
			return func(cfg *link.Config) { cfg.Keys = ring }
		}
		for i, l := range c.links {
			l.Stop()
			c.links[i] = c.start(l.Self(), with(old, fresh))
			serve(c.links[i])
		}
		time.Sleep(time.Second)
		alpha, beta := c.links[0], c.links[1]
		c.links[2].Stop()
		thief := c.start("gamma", with(old)) // pushes gamma's session out
		serve(thief)
		time.Sleep(time.Second)
		if h := alpha.Health()[1]; h.Key != old.Fingerprint() || h.ContactAgeMS > 500 {
			t.Fatalf("before the drop: %+v", h)
		}
		in, err := thief.Dial(t.Context(), "alpha", link.Raft)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range c.links[:2] {
			if err := l.SetKeys(link.KeyRing{fresh}); err != nil {
				t.Fatal(err)
			}
		}
		if open(in) {
			t.Error("the thief's stream outlives its key")
		}
		in.Close()
		dropped := time.Now()
		before := alpha.Counters()
		time.Sleep(10 * time.Second)
		// Both ends can say why they do not hear each other.
		if h := alpha.Health()[1]; h.ForeignKey != old.Fingerprint() || h.ForeignKeyAgeMS > 2000 {
			t.Errorf("of gamma is known: %+v", h)
		}
		if h := thief.Health()[0]; h.ForeignKey != fresh.Fingerprint() || h.ForeignKeyAgeMS > 2000 {
			t.Errorf("the thief knows of alpha: %+v", h)
		}
		if conn, err := thief.Dial(t.Context(), "alpha", link.Raft); err == nil {
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the thief was let in: %v", err)
			}
			conn.Close()
		}
		synctest.Wait()
		for _, l := range []*link.Link{alpha, beta} {
			if at, _ := l.Contact("gamma"); at.After(dropped) {
				t.Errorf("contact with the thief %s after the drop", at.Sub(dropped))
			}
		}
		after := alpha.Counters()
		if after.Packets.UnknownKey == before.Packets.UnknownKey || after.Conns.UnknownKey == before.Conns.UnknownKey {
			t.Errorf("not counted: %+v", after)
		}
		if after.Packets.Unproven > before.Packets.Unproven+100 {
			t.Errorf("the thief is answered: %+v", after.Packets)
		}
		thief.Stop()
		gamma := c.start("gamma", with(fresh))
		time.Sleep(time.Second)
		if age := contactAge(alpha, "gamma"); age < 0 || age > detection/2 {
			t.Errorf("gamma itself is not heard: %s", age)
		}
		gamma.Stop()
	})
}

// TestBubbleSetKeysUnheard: nothing but pulses makes the peers know the new run, even
// if the first packets of it are lost.
func TestBubbleSetKeysUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		time.Sleep(time.Second)
		alpha, beta := c.links[0], c.links[1]
		c.network.Isolate("alpha")
		for range 3 {
			if err := alpha.SetKeys(link.KeyRing{testKey(3), testKey(0)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := beta.SetKeys(link.KeyRing{testKey(0), testKey(3)}); err != nil {
			t.Fatal(err)
		}
		c.network.Rejoin("alpha")
		time.Sleep(detection / 4)
		for _, l := range c.links {
			if h := l.Health()[0]; h.ContactAgeMS > (detection/8).Milliseconds() || h.Links[0].InAgeMS > 500 || h.Links[1].OutAgeMS > 500 {
				t.Errorf("%s: %+v", l.Self(), h)
			}
		}
		if k := beta.Health()[0].Key; k != testKey(3).Fingerprint() {
			t.Errorf("alpha's key is %s", k)
		}
		for _, ring := range []link.KeyRing{nil, {}, {testKey(1), testKey(1)}, {link.Key{}}, make(link.KeyRing, 9)} {
			if err := alpha.SetKeys(ring); err == nil {
				t.Errorf("took %d bad keys", len(ring))
			}
		}
		alpha.Stop()
		if err := alpha.SetKeys(link.KeyRing{testKey(1)}); !errors.Is(err, link.ErrStopped) {
			t.Errorf("after Stop: %v", err)
		}
	})
}
