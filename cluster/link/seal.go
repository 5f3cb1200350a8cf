package link

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
)

// A packet on the wire:
//
//	magic 1 | version 1 | kind 1 | link 1 | name length 1 | sender's name |
//	fingerprint of the cluster key 8 | sender's session 16 |
//	receiver's session as the sender knows it 16 | sequence number 8 |
//	AES-256-GCM of report (see report.go) and payload, with its tag of 16
//
// All before the ciphertext is authenticated with it. The nonce is link and sequence
// number, under a key of its own for each (session, sender, receiver): the
// sequence counts up from 1 and the session is random for each process start,
// so that no nonce is ever used twice under one key, and none has to be random.
const (
	magic   = 0x68 // 'h'
	version = 2

	fixedHeader = 5 + len(keyID{}) + 2*sessionSize + 8 // without the name
	tagSize     = 16
	maxLinks    = 8

	// maxDatagram is what every path of IPv6 carries (RFC 8200, section 5: 1280 bytes), without
	// the headers of IPv6 and UDP: no switch, tunnel or host with a smaller MTU than the
	// nodes' own drops a packet for its size.
	maxDatagram = 1280 - 40 - 8
)

// MaxPayload is the most that Send takes, in bytes, whatever the names' lengths.
const MaxPayload = maxDatagram - fixedHeader - maxNameLength - maxReport - tagSize

// kind tells payload from talk about sessions.
type kind byte

const (
	data  kind = 1
	hello kind = 2 // no payload; see session.go
	pulse kind = 3 // no payload, or padding; see pulse.go
)

// header is the authenticated part of a packet.
type header struct {
	kind   kind
	link   byte // index of the path that the sender used
	sender string
	run              // of the sender
	echo   sessionID // of the receiver, as the sender knows it; zero: not known
	seq    uint64    // from 1, for each receiver
}

// nonce is unique for each (link, seq).
func (h header) nonce() []byte {
	n := make([]byte, 12)
	n[0] = h.link
	binary.BigEndian.PutUint64(n[4:], h.seq)
	return n
}

// seal makes the packet.
func seal(aead cipher.AEAD, h header, payload []byte) []byte {
	b := make([]byte, 0, fixedHeader+len(h.sender)+len(payload)+tagSize)
	b = append(b, magic, version, byte(h.kind), h.link, byte(len(h.sender)))
	b = append(b, h.sender...)
	b = append(b, h.key[:]...)
	b = append(b, h.session[:]...)
	b = append(b, h.echo[:]...)
	b = binary.BigEndian.AppendUint64(b, h.seq)
	return aead.Seal(b, h.nonce(), payload, b)
}

// split parses a packet without believing it. The drop is dropNone if the header is
// well formed; prefix is what the tag covers besides the ciphertext.
func split(b []byte) (h header, prefix, sealed []byte, why drop) {
	switch {
	case len(b) > maxDatagram:
		return h, nil, nil, dropTooBig
	case len(b) < fixedHeader+1+tagSize:
		return h, nil, nil, dropShort
	case b[0] != magic || b[1] != version:
		return h, nil, nil, dropVersion
	}
	n := int(b[4])
	if n == 0 || n > maxNameLength || len(b) < fixedHeader+n+tagSize {
		return h, nil, nil, dropShort
	}
	h.kind, h.link, h.sender = kind(b[2]), b[3], string(b[5:5+n])
	rest := b[5+n:]
	rest = rest[copy(h.key[:], rest):]
	rest = rest[copy(h.session[:], rest):]
	rest = rest[copy(h.echo[:], rest):]
	h.seq = binary.BigEndian.Uint64(rest)
	at := fixedHeader + n
	return h, b[:at], b[at:], dropNone
}

// run is what a process calls itself while it keeps its keys: a key that is added or
// dropped begins a new one, as a restart does.
type run struct {
	key     keyID // of the cluster key that seals its packets
	session sessionID
}

// sessionSize makes a repeated session beyond chance.
const sessionSize = 16

// sessionID names one run. The zero value is no session.
type sessionID [sessionSize]byte

func newSession() sessionID {
	var s sessionID
	rand.Read(s[:]) // never fails: crypto/rand ends the process instead
	return s
}
