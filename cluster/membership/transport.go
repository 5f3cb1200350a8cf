package membership

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hamgr/hamgr/cluster/link"
)

// transport carries memberlist's packets and streams over link, by node name.
type transport struct {
	self      string
	link      Link
	addresses addressBook
	listener  net.Listener
	packets   chan *memberlist.Packet
	streams   chan net.Conn

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex // guards open
	open map[*stream]struct{}
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(self string, l Link, addresses addressBook) *transport {
	ctx, cancel := context.WithCancel(context.Background())
	t := &transport{
		self: self, link: l, addresses: addresses, listener: l.Listener(link.Gossip),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		ctx: ctx, stop: cancel, open: make(map[*stream]struct{}),
	}
	t.wg.Go(t.receive)
	t.wg.Go(t.accept)
	return t
}

// receive hands sealed and opened packets to memberlist. Their sender is the node whose
// key opened them, not an address.
func (t *transport) receive() {
	for {
		select {
		case p, ok := <-t.link.Packets():
			if !ok {
				return
			}
			if _, known := t.addresses.ips[p.From]; !known || !plainPacket(p.Data) {
				continue
			}
			packet := &memberlist.Packet{Buf: p.Data, From: nodeAddr(t.addresses.address(p.From)), Timestamp: p.At}
			select {
			case t.packets <- packet:
			case <-t.ctx.Done():
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) accept() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return // closed: by Shutdown, or because link stopped
		}
		select {
		case t.streams <- t.track(conn):
		case <-t.ctx.Done():
			_ = conn.Close()
			return
		}
	}
}

// track makes Shutdown end the stream, which memberlist would leave to its deadline.
func (t *transport) track(conn net.Conn) net.Conn {
	s := &stream{Conn: conn, transport: t}
	t.mu.Lock()
	t.open[s] = struct{}{}
	t.mu.Unlock()
	if t.ctx.Err() != nil {
		_ = s.Close()
	}
	return s
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addresses.ips[t.self], gossipPort, nil
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

// WriteToAddress sends one packet, best effort.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	node, err := t.addresses.resolve(a.Name, a.Addr)
	if err != nil {
		return time.Time{}, err
	}
	if t.ctx.Err() != nil {
		return time.Time{}, ErrStopped
	}
	return time.Now(), t.link.Send(node, b)
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

// DialAddressTimeout opens a gossip stream.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	node, err := t.addresses.resolve(a.Name, a.Addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	conn, err := t.link.Dial(ctx, node, link.Gossip)
	if err != nil {
		return nil, fmt.Errorf("open a gossip stream to %s: %w", node, err)
	}
	return t.track(conn), nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes the listener and every stream, and waits for the receivers.
func (t *transport) Shutdown() error {
	t.stop()
	err := t.listener.Close()
	t.mu.Lock()
	open := make([]*stream, 0, len(t.open))
	for s := range t.open {
		open = append(open, s)
	}
	t.mu.Unlock()
	for _, s := range open {
		_ = s.Close()
	}
	t.wg.Wait()
	return err
}
