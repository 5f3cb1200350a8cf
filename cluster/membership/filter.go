package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
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
// What nothing refutes it never sends.
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
	case msgPing, msgIndirectPing, msgAck, msgNack, msgAlive:
		return true
	case msgSuspect, msgDead:
		return refutable(b[1:])
	default:
		return false
	}
}

// stream is a gossip connection that refuses compressed messages, accusations that nothing refutes, and floods, and that
// its transport can close.
type stream struct {
	net.Conn
	transport *transport
	checked   io.Reader // what came, from the first byte on; nil before the first Read
	refused   error
}

// Read checks the message before it gives any of it.
func (s *stream) Read(p []byte) (int, error) {
	if s.checked == nil {
		s.refused = s.check()
	}
	if s.refused != nil {
		return 0, s.refused
	}
	return s.checked.Read(p)
}

// check reads the first byte, which is the message type, and whatever must be judged.
func (s *stream) check() error {
	in := io.LimitReader(s.Conn, maxStream)
	var begun bytes.Buffer
	s.checked = io.MultiReader(&begun, in)
	read := io.TeeReader(in, &begun)
	var kind [1]byte
	if _, err := io.ReadFull(read, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case msgPing, msgAck, msgError:
		return nil
	case msgPushPull:
		return checkStates(read)
	}
	return errStream
}

// Close closes the connection and forgets it.
func (s *stream) Close() error {
	s.transport.mu.Lock()
	delete(s.transport.open, s)
	s.transport.mu.Unlock()
	return s.Conn.Close()
}
