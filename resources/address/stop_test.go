package address

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// connect makes a TCP connection from a client to a host's address, and gives both ends.
func connect(t *testing.T, client, server *host, network string, at, to netip.AddrPort) (near, far net.Conn, l net.Listener) {
	t.Helper()
	var err error
	server.in(func() { l, err = net.Listen(network, at.String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client.in(func() { far, err = net.DialTimeout("tcp", to.String(), 2*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far, l
}

// ended reports whether a read of a connection ends soon.
func ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// The connections of the address end with it, at both ends; all others go on, and so do listeners.
func TestStopEndsConnections(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, client := n.join("a", 1), n.join("client", 9)
			service := a.resource(Options{Address: cidr})
			mustStart(t, service)
			own, family := netip.MustParseAddr("10.0.0.1"), "tcp4"
			if service.ip.Is6() {
				own, family = netip.MustParseAddr("fd00::1"), "tcp6"
			}
			ours, ourFar, listener := connect(t, client, a, family, netip.AddrPortFrom(service.ip, 1000), netip.AddrPortFrom(service.ip, 1000))
			// A listener of both families accepts IPv4 on sockets of IPv6.
			mapped, mappedFar, _ := connect(t, client, a, "tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), 1001), netip.AddrPortFrom(service.ip, 1001))
			other, otherFar, _ := connect(t, client, a, family, netip.AddrPortFrom(own, 1002), netip.AddrPortFrom(own, 1002))
			mustStop(t, service)
			for name, c := range map[string]net.Conn{"near": ours, "far": ourFar, "mapped, near": mapped, "mapped, far": mappedFar} {
				if !ended(c) {
					t.Errorf("the connection (%s) goes on", name)
				}
			}
			if left, err := service.kernel.connections(service.ip); err != nil || len(left) != 0 {
				t.Errorf("connections left: %v %v", left, err)
			}
			go func() { _, _ = otherFar.Write([]byte("x")) }()
			if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
				t.Errorf("the connection of another address ended: %v", err)
			}
			mustStart(t, service)
			var again net.Conn
			var err error
			client.in(func() { again, err = net.DialTimeout("tcp", listener.Addr().String(), time.Second) })
			if err != nil {
				t.Fatalf("the listener did not survive: %v", err)
			}
			again.Close()
		})
	}
}

// Addresses that the kernel made secondary to ours do not go with it.
func TestStopKeepsTheOthers(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a := n.join("a", 0)
	first := a.resource(Options{Address: "10.0.0.100/24", Interface: "eth0"})
	second := a.resource(Options{Address: "10.0.0.101/24", Interface: "eth0"})
	mustStart(t, first)
	mustStart(t, second)
	a.give("eth0", "10.0.0.50/24")
	mustStop(t, first)
	wantState(t, second, resources.Active, "on eth0")
	if a.has(netip.MustParseAddr("10.0.0.50")) == nil {
		t.Error("an address of the host went with ours")
	}
	mustStop(t, second)
	if a.has(netip.MustParseAddr("10.0.0.50")) == nil {
		t.Error("an address of the host went with ours")
	}
}

// Stop is content with what is not there, in whatever way.
func TestStopWithoutAddress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a := n.join("a", 1)
	mustStop(t, a.resource(Options{Address: "10.0.0.100/24"}))
	service := a.resource(Options{Address: "10.0.0.100/24", Interface: "eth0"})
	mustStop(t, service)
	mustStart(t, service)
	a.must(a.handle.LinkDel(a.link("eth0")))
	mustStop(t, service)
	mustStop(t, service)
}

// Starts that are called off at any moment leave nothing behind once they were stopped.
func TestCalledOff(t *testing.T) {
	n := newNetwork(t)
	a := n.join("a", 1)
	var services []*address
	for _, cidr := range serviceAddresses {
		services = append(services, a.resource(Options{Address: cidr, DuplicateTimeout: minDuplicateTimeout}))
	}
	fds, goroutines := openFiles(t), runtime.NumGoroutine()
	var started atomic.Int32
	var running sync.WaitGroup
	for _, service := range services {
		running.Go(func() {
			for range 100 {
				if callOff(t, service) {
					started.Add(1)
				}
				if on := a.has(service.ip); on != nil {
					t.Errorf("stopped, and still on %v", on)
				}
			}
		})
	}
	running.Wait()
	if n := started.Load(); n == 0 || n == 200 {
		t.Errorf("%d of 200 starts came to their end: the test tested nothing", n)
	}
	eventually(t, time.Second, "no goroutine and no file is left", func() bool {
		return openFiles(t) == fds && runtime.NumGoroutine() <= goroutines
	})
}

// letGo is how soon a call comes back whose context has ended, with room for a busy machine.
const letGo = time.Second

// callOff starts at most for a while, and stops; now and then a stop is called off before. It reports whether the
// start came to its end.
func callOff(t *testing.T, service *address) (started bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(20_000))*time.Microsecond)
	started = service.Start(ctx) == nil
	cancel()
	if rand.IntN(4) == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(1000))*time.Microsecond)
		_ = service.Stop(ctx)
		cancel()
	}
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := service.Stop(ctx); err != nil {
		t.Error(err)
	}
	return started
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A kernel that does not answer holds nobody up; and nothing is said to be stopped before it has answered.
func TestKernelHangs(t *testing.T) {
	n := newNetwork(t)
	a := n.join("a", 1)
	service := a.resource(Options{Address: "10.0.0.100/24"})
	release := make(chan struct{})
	var hangs atomic.Bool
	service.kernel.socket = func(domain, typ, proto int) (int, error) {
		if hangs.Load() {
			<-release
		}
		return a.socket(domain, typ, proto)
	}
	quick := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		start := time.Now()
		err := call(deadline(t, 30*time.Millisecond))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Millisecond+letGo {
			t.Errorf("%s: %v after %s", what, err, took)
		}
	}
	// The whole kernel hangs.
	hangs.Store(true)
	quick("probe", func(ctx context.Context) error { _, _, err := service.Probe(ctx); return err })
	quick("start", service.Start)
	quick("stop", service.Stop)
	quick("check", service.Check)
	hangs.Store(false)

	// It hangs while it adds the address, and adds it when nobody waits any more.
	l, err := service.kernel.linkNamed("eth0")
	a.must(err)
	quick("add", func(ctx context.Context) error {
		return service.change(ctx, func() error { <-release; return service.kernel.add(l.index, service.ip, 24) }, nil)
	})
	quick("stop behind add", service.Stop)
	wantState(t, service, resources.Inactive, "")
	done := make(chan error, 1)
	go func() { done <- service.Stop(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("stopped while an address may still come: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantState(t, service, resources.Inactive, "")

	// One that hangs behind a start is undone as soon as it comes.
	var once sync.Once
	begun, late := make(chan struct{}), make(chan struct{})
	quick("start", func(ctx context.Context) error {
		return service.change(ctx, func() error {
			once.Do(func() { close(begun) })
			<-late
			return service.kernel.add(l.index, service.ip, 24)
		}, func() error { return service.kernel.remove(entry{index: l.index, ip: service.ip, bits: 24}) })
	})
	<-begun
	close(late)
	eventually(t, time.Second, "the request came back", func() bool { return len(service.changing) == 0 })
	wantState(t, service, resources.Inactive, "")
}

// What the kernel gave when nobody waited for it any more is given back.
func TestLateSocket(t *testing.T) {
	n := newNetwork(t)
	a := n.join("a", 1)
	service := a.resource(Options{Address: "fd00::100/64"})
	release, back := make(chan struct{}), make(chan struct{})
	service.kernel.socket = func(domain, typ, proto int) (int, error) {
		if domain == unix.AF_PACKET {
			<-release
		}
		if domain == unix.AF_INET6 {
			defer close(back)
		}
		return a.socket(domain, typ, proto)
	}
	fds := openFiles(t)
	if err := service.Start(deadline(t, 30*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	close(release)
	<-back
	eventually(t, time.Second, "the sockets are closed", func() bool { return openFiles(t) == fds })
}

// Whoever waits for another host's answer is let go at once.
func TestCalledOffWhileAsking(t *testing.T) {
	n := newNetwork(t)
	a := n.join("a", 1)
	for _, cidr := range serviceAddresses {
		service := a.resource(Options{Address: cidr, DuplicateTimeout: maxDuplicateTimeout})
		start := time.Now()
		err := service.Start(deadline(t, 30*time.Millisecond))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Millisecond+letGo {
			t.Errorf("%v after %s", err, took)
		}
		wantState(t, service, resources.Inactive, "")
	}
}

// 500 addresses are monitored for little.
func BenchmarkMonitor(b *testing.B) {
	for _, cidr := range []string{"10.0.0.%d/16", "fd00::%x/64"} {
		b.Run(cidr, func(b *testing.B) {
			k := kernel{socket: unix.Socket}
			l, err := k.linkNamed("lo")
			if err != nil {
				b.Fatal(err)
			}
			all := make([]*address, 0, 500)
			for i := range cap(all) {
				s := fmt.Sprintf("10.7.%d.%d/16", i/250, 1+i%250)
				if cidr[0] == 'f' {
					s = fmt.Sprintf("fd00::%x/64", i+1)
				}
				r, err := (&Options{Address: s, Interface: "lo"}).New(resources.Env{})
				if err != nil {
					b.Fatal(err)
				}
				a := r.(*address)
				if err := k.add(l.index, a.ip, a.bits); err != nil && !errors.Is(err, unix.EEXIST) {
					b.Fatal(err)
				}
				all = append(all, a)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, _, err := all[i%len(all)].Probe(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
