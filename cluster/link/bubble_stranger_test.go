package link_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// TestBubbleRemovedNode: a node that is configured nowhere else any more may ask by Join,
// under its own name, and is nobody in every other respect.
func TestBubbleRemovedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		alpha := c.links[0]
		c.nodes = append(c.nodes, link.Node{Name: "delta", Addresses: []string{"10.0.0.9:7846", "10.1.0.9:7846"}})
		delta := c.start("delta")
		for _, p := range []link.Protocol{link.Raft, link.Gossip, link.API} {
			n := alpha.Listener(p)
			go func() {
				for {
					conn, err := n.Accept()
					if err != nil {
						return
					}
					t.Errorf("%s was let in for %s", conn.(interface{ Peer() string }).Peer(), p)
					conn.Close()
				}
			}()
		}
		join := alpha.Listener(link.Join)
		visits := make(chan string, 100)
		go func() {
			for {
				conn, err := join.Accept()
				if err != nil {
					return
				}
				visits <- conn.(interface{ Peer() string }).Peer()
				go func() { io.Copy(conn, conn); conn.Close() }()
			}
		}()
		time.Sleep(time.Second)
		for _, p := range []link.Protocol{link.Raft, link.Gossip, link.API} {
			if conn, err := delta.Dial(t.Context(), "alpha", p); err == nil {
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s: a byte came", p)
				}
				conn.Close()
			}
		}
		conn, err := delta.Dial(t.Context(), "alpha", link.Join)
		if err != nil {
			t.Fatal(err)
		}
		if err := echoOver(conn, "am I removed?"); err != nil {
			t.Fatal(err)
		}
		if name := <-visits; name != "delta" {
			t.Errorf("it came as %s", name)
		}
		conn.Close()
		if _, ok := alpha.Contact("delta"); ok || len(alpha.Health()) != 1 {
			t.Errorf("a stranger counts: %+v", alpha.Health())
		}
		n := alpha.Counters()
		if n.StrangersHeard != 1 || n.ConnsAccepted != 0 || n.Conns.UnknownNode != 3 || n.Packets.UnknownNode == 0 || n.PacketsReceived == 0 {
			t.Errorf("counted: %+v", n)
		}
		for len(alpha.Packets()) > 0 {
			t.Error("a stranger's packet was delivered")
			<-alpha.Packets()
		}

		// At most four at once, none for longer than a dial may take.
		var held []net.Conn
		for range 6 {
			conn, err := delta.Dial(t.Context(), "alpha", link.Join)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
			time.Sleep(300 * time.Millisecond)
		}
		if n := len(visits); n != 4 {
			t.Errorf("%d visitors at once", n)
		}
		if got := alpha.Counters().Conns.Strangers; got != 2 {
			t.Errorf("%d refused, want 2", got)
		}
		time.Sleep(detection)
		for i, conn := range held {
			if open(conn) {
				t.Errorf("visitor %d stays", i)
			}
			conn.Close()
		}

		// A burst, then four in a second.
		before := alpha.Counters().StrangersHeard
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 100 {
				if conn, err := delta.Dial(t.Context(), "alpha", link.Join); err == nil {
					echoOver(conn, "x")
					conn.Close()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		wg.Wait()
		if n := alpha.Counters().StrangersHeard - before; n < 8 || n > 8+2*4+1 {
			t.Errorf("%d visits in two seconds", n)
		}
		delta.Stop()
	})
}
