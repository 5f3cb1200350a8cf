package membership

import (
	"encoding/binary"
	"errors"
	"net"
)

// Message types of memberlist v0.7.0 (its net.go), as they stand in a packet's first byte.
const (
	msgPing byte = iota
	msgIndirectPing
	msgAck
	msgSuspect
	msgAlive
	msgDead
	msgPushPull
	msgCompound
	msgUser
	msgCompressed
	msgEncrypted
	msgNack
	msgChecksum
	msgError
)

// maxStream is the most that one gossip stream may bring: a push-pull of 64 nodes with
// full meta stays far below.
const maxStream = 1 << 20

var errStream = errors.New("gossip stream holds what this cluster never sends")

// plainPacket tells whether a packet consists only of the messages that this cluster
// sends. memberlist unpacks compressed messages even where its own compression is off.
func plainPacket(b []byte) bool {
	if len(b) >= 5 && b[0] == msgChecksum {
		b = b[5:]
	}
	if len(b) == 0 {
		return false
	}
	if b[0] != msgCompound {
		return plainMessage(b)
	}
	// A count, that many 16-bit lengths, then the messages; a truncated tail is legal.
	if len(b) < 2 {
		return false
	}
	count, lengths := int(b[1]), b[2:]
	if len(lengths) < 2*count {
		return false
	}
	messages := lengths[2*count:]
	for i := range count {
		size := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if size > len(messages) {
			return true
		}
		if !plainMessage(messages[:size]) {
			return false
		}
		messages = messages[size:]
	}
	return true
}

func plainMessage(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	switch b[0] {
	case msgPing, msgIndirectPing, msgAck, msgNack, msgSuspect, msgAlive, msgDead:
		return true
	default:
		return false
	}
}

// stream is a gossip connection that refuses compressed messages and floods, and that its
// transport can close.
type stream struct {
	net.Conn
	transport *transport
	received  int
}

// Read checks the first byte, which is the message type.
func (s *stream) Read(p []byte) (int, error) {
	if s.received > maxStream {
		return 0, errStream
	}
	n, err := s.Conn.Read(p)
	if n > 0 && s.received == 0 {
		switch p[0] {
		case msgPing, msgAck, msgPushPull, msgError:
		default:
			return 0, errStream
		}
	}
	s.received += n
	return n, err
}

// Close closes the connection and forgets it.
func (s *stream) Close() error {
	s.transport.mu.Lock()
	delete(s.transport.open, s)
	s.transport.mu.Unlock()
	return s.Conn.Close()
}
