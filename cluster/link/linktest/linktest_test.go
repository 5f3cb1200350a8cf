package linktest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/link/linktest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// two is a network of two hosts with two links and a bound socket and port on each
// address.
type two struct {
	*linktest.Network
	t        *testing.T
	a, b     link.Network
	as, bs   []net.PacketConn
	aIn, bIn net.Listener
	aAt, bAt []string
}

// inBubble runs f in virtual time with two hosts, a and b.
func inBubble(t *testing.T, f func(t *testing.T, n *two)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &two{Network: linktest.New(7), t: t, aAt: []string{"10.0.0.1:1", "10.1.0.1:1"}, bAt: []string{"10.0.0.2:1", "10.1.0.2:1"}}
		n.a, n.b = n.Host("a", n.aAt...), n.Host("b", n.bAt...)
		for i := range n.aAt {
			n.as = append(n.as, n.socket(n.a, n.aAt[i]))
			n.bs = append(n.bs, n.socket(n.b, n.bAt[i]))
		}
		n.aIn, n.bIn = n.listen(n.a, n.aAt[0]), n.listen(n.b, n.bAt[0])
		f(t, n)
	})
}

func (n *two) socket(h link.Network, address string) net.PacketConn {
	n.t.Helper()
	s, err := h.ListenPacket(address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { s.Close() })
	return s
}

func (n *two) listen(h link.Network, address string) net.Listener {
	n.t.Helper()
	l, err := h.Listen(address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	return l
}

// stream connects a to b.
func (n *two) stream() (a, b net.Conn) {
	n.t.Helper()
	a, err := n.a.Dial(n.t.Context(), "10.0.0.1", n.bAt[0])
	if err != nil {
		n.t.Fatal(err)
	}
	b, err = n.bIn.Accept()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// send sends a word from a to b over one link.
func (n *two) send(link int, word string) {
	n.t.Helper()
	if _, err := n.as[link].WriteTo([]byte(word), n.bs[link].LocalAddr()); err != nil {
		n.t.Fatal(err)
	}
}

// got reads what has arrived at a socket by now.
func got(s net.PacketConn) []string {
	synctest.Wait()
	var words []string
	s.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer s.SetReadDeadline(time.Time{})
	b := make([]byte, 100)
	for {
		n, _, err := s.ReadFrom(b)
		if err != nil {
			return words
		}
		words = append(words, string(b[:n]))
	}
}

func (n *two) want(s net.PacketConn, what string, words ...string) {
	n.t.Helper()
	if g := got(s); !slices.Equal(g, words) {
		n.t.Errorf("%s: got %q, want %q", what, g, words)
	}
}

// wantRead reads exactly one word of a stream, which must come at this very instant.
func wantRead(t *testing.T, c net.Conn, word string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
		t.Errorf("read %q, %v; want %q", b, err, word)
	}
	c.SetReadDeadline(time.Time{})
}

// wantSilence checks that nothing comes for a while, and no end or reset either.
func wantSilence(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	began := time.Now()
	c.SetReadDeadline(began.Add(d))
	n, err := c.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != d {
		t.Errorf("read %d bytes, %v after %s; want silence", n, err, time.Since(began))
	}
	c.SetReadDeadline(time.Time{})
}

func TestPacketsAndCuts(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		n.send(0, "one")
		n.want(n.bs[0], "no fault", "one")

		n.Cut("a", "b")
		n.send(0, "lost")
		n.send(1, "lost")
		n.bs[0].WriteTo([]byte("back"), n.as[0].LocalAddr())
		n.want(n.as[0], "the other direction", "back")
		n.Heal("a", "b")
		n.want(n.bs[0], "healed: what was lost stays lost")

		n.CutLink(1, "a", "b")
		n.send(0, "by 0")
		n.send(1, "by 1")
		n.want(n.bs[0], "the whole link", "by 0")
		n.want(n.bs[1], "the cut link")
		n.HealLink(1, "a", "b")

		n.Isolate("b")
		n.send(0, "lost")
		n.bs[0].WriteTo([]byte("lost"), n.as[0].LocalAddr())
		n.Cut("a", "b")
		n.Rejoin("b")
		n.bs[0].WriteTo([]byte("back"), n.as[0].LocalAddr())
		n.send(0, "still cut")
		n.want(n.as[0], "rejoined", "back")
		n.want(n.bs[0], "rejoined, but cut")
		n.HealAll()
		n.send(0, "two")
		n.want(n.bs[0], "all healed", "two")
	})
}

func TestNarrow(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		n.Narrow(1, "a", "b", 3)
		n.send(0, "long")
		n.send(1, "long")
		n.send(1, "abc")
		n.bs[1].WriteTo([]byte("long"), n.as[1].LocalAddr())
		n.want(n.bs[0], "the other link", "long")
		n.want(n.bs[1], "the narrow link", "abc")
		n.want(n.as[1], "the other direction", "long")
		n.HealAll()
		n.send(1, "long")
		n.want(n.bs[1], "healed", "long")
	})
}

func TestPacketsDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		n.Delay(10*time.Millisecond, 20*time.Millisecond)
		n.send(0, "x")
		time.Sleep(10*time.Millisecond - 1)
		n.want(n.bs[0], "too early")
		time.Sleep(10 * time.Millisecond)
		n.want(n.bs[0], "in time", "x")

		n.send(0, "under way")
		n.Cut("a", "b")
		time.Sleep(time.Second)
		n.want(n.bs[0], "cut while under way")
		n.HealAll()

		for i := range 50 {
			n.send(0, string(rune('A'+i)))
		}
		time.Sleep(time.Second)
		words := got(n.bs[0])
		if len(words) != 50 || slices.IsSorted(words) {
			t.Errorf("want 50 packets that overtake each other, got %q", words)
		}
	})
}

func TestLossAndDuplicates(t *testing.T) {
	count := func(set func(n *two)) (arrived int) {
		inBubble(t, func(t *testing.T, n *two) {
			set(n)
			for range 1000 {
				n.send(0, "x")
				arrived += len(got(n.bs[0]))
			}
		})
		return arrived
	}
	if c := count(func(n *two) { n.Loss(0.3) }); c < 630 || c > 770 {
		t.Errorf("%d of 1000 arrived at a loss of 0.3", c)
	}
	if c := count(func(n *two) { n.Duplicate(0.3) }); c < 1230 || c > 1370 {
		t.Errorf("%d of 1000 arrived at duplicates of 0.3", c)
	}
	if one, two := count(func(n *two) { n.Loss(0.5) }), count(func(n *two) { n.Loss(0.5) }); one != two {
		t.Errorf("the same seed gave %d and %d", one, two)
	}
}

func TestStreamHeldByCut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		a, b := n.stream()
		io.WriteString(a, "one")
		wantRead(t, b, "one")
		n.Cut("a", "b")
		io.WriteString(a, "two")
		io.WriteString(b, "back")
		wantRead(t, a, "back")
		wantSilence(t, b, time.Hour)
		n.Heal("a", "b")
		wantRead(t, b, "two")

		n.Cut("a", "b")
		io.WriteString(a, "three")
		a.Close()
		wantSilence(t, b, time.Hour)
		n.HealAll()
		wantRead(t, b, "three")
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestStreamInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		n.Delay(0, 50*time.Millisecond)
		began := time.Now()
		a, b := n.stream()
		if time.Since(began) == 0 {
			t.Error("a handshake takes no round trip")
		}
		var want strings.Builder
		for i := range 200 {
			word := string(rune('0' + i%10))
			want.WriteString(word)
			io.WriteString(a, word)
		}
		a.Close()
		read, err := io.ReadAll(b)
		if err != nil || string(read) != want.String() {
			t.Errorf("read %q, %v", read, err)
		}
	})
}

func TestStreamBackpressure(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		a, b := n.stream()
		a.SetWriteDeadline(time.Now().Add(time.Second))
		big := make([]byte, 1<<20)
		wrote, err := a.Write(big)
		if !errors.Is(err, os.ErrDeadlineExceeded) || wrote == 0 || wrote == len(big) {
			t.Fatalf("wrote %d bytes, %v, to one who does not read", wrote, err)
		}
		a.SetWriteDeadline(time.Time{})
		done := make(chan int)
		go func() { k, _ := a.Write(big); a.Close(); done <- k }()
		read, err := io.Copy(io.Discard, b)
		if k := <-done; err != nil || read != int64(wrote+k) || k != len(big) {
			t.Errorf("wrote %d and %d, read %d, %v", wrote, k, read, err)
		}
	})
}

func TestStreamDeadlinesAndClose(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		a, b := n.stream()
		result := make(chan error, 1)
		go func() { _, err := b.Read(make([]byte, 1)); result <- err }()
		time.Sleep(time.Second)
		b.SetReadDeadline(time.Now()) // reaches the read that waits
		if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		b.SetReadDeadline(time.Now().Add(time.Hour))
		go func() { _, err := b.Read(make([]byte, 1)); result <- err }()
		synctest.Wait()
		b.Close()
		if err := <-result; !errors.Is(err, net.ErrClosed) {
			t.Errorf("close: %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the far end closed: %v", err)
		}
		io.WriteString(a, "to nobody")
		if _, err := io.WriteString(a, "more"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write to a closed end: %v", err)
		}
	})
}

func TestFreezeAndThaw(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		a, b := n.stream()
		n.Freeze("b")
		n.send(0, "one")
		n.send(0, "two")
		n.bs[0].WriteTo([]byte("from b"), n.as[0].LocalAddr())
		io.WriteString(a, "bytes")
		wantSilence(t, b, time.Minute)
		n.want(n.bs[0], "frozen")
		n.want(n.as[0], "frozen")
		dialed := make(chan error, 1)
		go func() {
			c, err := n.a.Dial(t.Context(), "", n.bAt[0])
			if err == nil {
				c.Close()
			}
			dialed <- err
		}()
		time.Sleep(time.Minute)
		if len(dialed) != 0 {
			t.Error("a frozen host answered a dial")
		}
		n.Thaw("b")
		n.want(n.bs[0], "thawed, in order", "one", "two")
		n.want(n.as[0], "thawed", "from b")
		wantRead(t, b, "bytes")
		if err := <-dialed; err != nil {
			t.Errorf("dial of a thawed host: %v", err)
		}
	})
}

func TestPowerCut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		n.Delay(time.Millisecond, time.Millisecond)
		a, b := n.stream()
		idle, _ := n.stream()
		io.WriteString(b, "under way")
		n.bs[0].WriteTo([]byte("under way"), n.as[0].LocalAddr())
		n.Down("b")
		io.WriteString(a, "into the void")
		n.send(0, "into the void")
		wantSilence(t, a, time.Hour)
		n.want(n.as[0], "under way when the power failed")
		if _, err := n.b.Listen("10.0.0.2:2"); err == nil {
			t.Error("a host without power listens")
		}
		b.Close() // what the dead do reaches nobody
		io.WriteString(b, "x")
		n.bs[0].WriteTo([]byte("x"), n.as[0].LocalAddr())

		n.Up("b")
		time.Sleep(time.Second)
		n.want(n.as[0], "sent by a dead process")
		n.send(0, "nobody listens")
		if _, err := n.a.Dial(t.Context(), "", n.bAt[0]); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial of a host that just booted: %v", err)
		}
		fresh := n.socket(n.b, n.bAt[0])
		n.send(0, "again")
		time.Sleep(time.Second)
		n.want(fresh, "after the boot", "again")
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("old conn with unanswered bytes: %v", err)
		}
		wantSilence(t, idle, time.Hour) // nobody asked
		io.WriteString(idle, "anyone?")
		time.Sleep(time.Second)
		if _, err := io.WriteString(idle, "?"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("old conn, written to: %v", err)
		}
	})
}

func TestDial(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		began := time.Now()
		if _, err := n.a.Dial(t.Context(), "10.0.0.1", "10.0.0.2:99"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("no listener: %v", err)
		}
		if _, err := n.a.Dial(t.Context(), "10.0.0.2", n.bAt[0]); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("from another's address: %v", err)
		}
		if time.Since(began) != 0 {
			t.Errorf("these took %s", time.Since(began))
		}
		for what, fault := range map[string]func(){
			"cut there":     func() { n.Cut("a", "b") },
			"cut back":      func() { n.Cut("b", "a") },
			"link cut":      func() { n.CutLink(0, "b", "a") },
			"caller frozen": func() { n.Freeze("a") },
			"no such host":  func() {},
		} {
			fault()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			address := n.bAt[0]
			if what == "no such host" {
				address = "10.9.9.9:1"
			}
			_, err := n.a.Dial(ctx, "10.0.0.1", address)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %s", what, err, time.Since(began))
			}
			cancel()
			n.HealAll()
			n.Thaw("a")
		}
		n.Isolate("a")
		time.AfterFunc(time.Second, func() { n.Rejoin("a") })
		c, err := n.a.Dial(t.Context(), "", n.bAt[0])
		if err != nil {
			t.Fatalf("dial over a cut that heals: %v", err)
		}
		c.Close()
	})
}

func TestListeners(t *testing.T) {
	inBubble(t, func(t *testing.T, n *two) {
		for what, c := range map[string]struct {
			address string
			want    error
		}{"in use": {n.aAt[0], syscall.EADDRINUSE}, "another's": {n.bAt[0], syscall.EADDRNOTAVAIL}, "nobody's": {"10.9.9.9:1", syscall.EADDRNOTAVAIL}} {
			if _, err := n.a.Listen(c.address); !errors.Is(err, c.want) {
				t.Errorf("port %s: %v", what, err)
			}
			if _, err := n.a.ListenPacket(c.address); !errors.Is(err, c.want) {
				t.Errorf("socket %s: %v", what, err)
			}
		}
		waiting, err := n.a.Dial(t.Context(), "", n.bAt[0])
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
		n.bIn.Close() // with a conn that nobody accepted
		if _, err := waiting.Read(make([]byte, 1)); err == nil {
			t.Error("a conn outlives its listener's backlog")
		}
		closed := make(chan error, 2)
		l, s := n.listen(n.b, n.bAt[0]), n.socket(n.b, "10.0.0.2:2")
		go func() { _, err := l.Accept(); closed <- err }()
		go func() { _, _, err := s.ReadFrom(nil); closed <- err }()
		synctest.Wait()
		l.Close()
		s.Close()
		for range 2 {
			if err := <-closed; !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed while waiting: %v", err)
			}
		}
	})
}
