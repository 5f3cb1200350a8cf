package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// TestBubbleLateAddress: an address that is missing at the start is bound once it is there.
func TestBubbleLateAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha")
		c.nodes = append(c.nodes, link.Node{Name: "beta", Addresses: []string{"10.0.0.2:7846", "10.1.0.2:7846"}})
		c.links[0].Stop()
		alpha := c.start("alpha")
		serve(alpha)
		host := c.network.Host("beta", "10.0.0.2:7846") // the second interface is not up
		cfg := link.Config{Cluster: "test", Self: "beta", Nodes: c.nodes, Keys: link.KeyRing{testKey(0)}, Network: host}
		beta, err := link.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(beta.Stop)
		time.Sleep(10 * time.Second)
		alpha.Send("beta", []byte("x"))
		time.Sleep(time.Second)
		if h := beta.Health()[0]; !h.Links[0].Bound || h.Links[1].Bound || h.Links[1].InAgeMS != link.Never {
			t.Errorf("one address is missing, but: %+v", h)
		}
		c.network.CutLink(0, "beta", "alpha")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if conn, err := beta.Dial(ctx, "alpha", link.Raft); err != nil { // not from its own address
			t.Errorf("dial without the link's own address: %v", err)
		} else {
			conn.Close()
		}
		cancel()
		c.network.HealAll()

		c.network.Host("beta", "10.1.0.2:7846") // now it is
		time.Sleep(2 * time.Second)
		drain(beta)
		alpha.Send("beta", []byte("x"))
		synctest.Wait()
		if h := beta.Health()[0]; !h.Links[1].Bound || h.Links[1].InAgeMS != 0 {
			t.Errorf("the address is there, but: %+v", h)
		}
		if n := drain(beta); n != 1 {
			t.Errorf("%d packets, want 1", n)
		}
	})
}

// TestBubbleLoserIsClosed: both links are slow enough that both are dialed; one conn
// remains on each side.
func TestBubbleLoserIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		c.network.Delay(40*time.Millisecond, 60*time.Millisecond)
		open := make(chan int, 10)
		n := c.links[1].Listener(link.Raft)
		go func() {
			for {
				conn, err := n.Accept()
				if err != nil {
					return
				}
				open <- 1
				go func() { io.Copy(io.Discard, conn); conn.Close(); open <- -1 }()
			}
		}()
		conn, err := c.links[0].Dial(t.Context(), "beta", link.Raft)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		left := 0
		for len(open) > 0 {
			left += <-open
		}
		if left != 1 {
			t.Errorf("%d conns are open, want 1", left)
		}
		conn.Close()
		time.Sleep(10 * time.Second)
	})
}

// TestBubbleStuckPeer: closing a conn to a peer that takes nothing does not take long, and
// Stop with such conns neither.
func TestBubbleStuckPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		c.links[1].Listener(link.Raft) // nobody reads
		var conns []net.Conn
		for range 2 {
			conn, err := c.links[0].Dial(t.Context(), "beta", link.Raft)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := conn.Write(make([]byte, 4<<20)); err == nil {
				t.Fatal("a peer that does not read took 4 MiB")
			}
			conns = append(conns, conn)
		}
		began := time.Now()
		conns[0].Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("close took %s", took)
		}
		began = time.Now()
		c.links[0].Stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("stop took %s", took)
		}
	})
}

// TestBubbleClocks: after two hundred years the certificates still hold.
func TestBubbleClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		for _, wait := range []time.Duration{0, 200 * 365 * 24 * time.Hour} {
			for _, l := range c.links {
				l.Stop() // their pulses would fill the years
			}
			time.Sleep(wait)
			c.links = []*link.Link{c.start("alpha"), c.start("beta")}
			serve(c.links[1])
			conn, err := c.links[0].Dial(t.Context(), "beta", link.Raft)
			if err != nil {
				t.Fatalf("in %d: %v", time.Now().Year(), err)
			}
			if err := echoOver(conn, "x"); err != nil {
				t.Errorf("in %d: %v", time.Now().Year(), err)
			}
			conn.Close()
		}
	})
}

// TestBubbleFrozenAndPowerless: what the others see of a paused host, and of one that lost
// its power and came back.
func TestBubbleFrozenAndPowerless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		alpha, beta := c.links[0], c.links[1]
		serve(beta)
		time.Sleep(time.Second)
		conn, err := alpha.Dial(t.Context(), "beta", link.Raft)
		if err != nil {
			t.Fatal(err)
		}
		c.network.Freeze("beta")
		beta.Send("alpha", []byte("held"))
		time.Sleep(time.Minute)
		if age := contactAge(alpha, "beta"); age < time.Minute {
			t.Errorf("contact with a paused host %s ago", age)
		}
		c.network.Thaw("beta")
		synctest.Wait()
		if age := contactAge(alpha, "beta"); age != 0 {
			t.Errorf("contact after the pause %s ago", age)
		}

		c.network.Down("beta")
		beta.Stop()
		time.Sleep(time.Minute)
		c.network.Up("beta")
		c.links[1] = c.start("beta")
		serve(c.links[1])
		io.WriteString(conn, "to the old run")
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("old conn after the power cut: %v; want a reset", err)
		}
		conn.Close()
		time.Sleep(time.Second)
		if conn, err = alpha.Dial(t.Context(), "beta", link.Raft); err != nil {
			t.Fatal(err)
		}
		if err := echoOver(conn, "new"); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}
