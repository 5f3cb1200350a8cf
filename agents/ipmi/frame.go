package ipmi

import (
	"encoding/binary"
	"errors"
)

// An RMCP+ datagram (IPMI 2.0, table 13-8): RMCP header of 4 bytes, session header of 12,
// payload, and in a session the trailer: pad, pad length, next header, AuthCode.
const (
	rmcpVersion  = 0x06
	rmcpClass    = 0x07 // IPMI
	formatRMCPP  = 0x06 // RMCP+, IPMI 2.0
	nextHeader   = 0x07 // reserved, always this
	headerLength = 16
	signedFrom   = 4 // the AuthCode covers what lies between the RMCP header and itself

	largestDatagram = 4096
)

// Payload types (IPMI 2.0, table 13-16), with the two flags that share their byte.
const (
	kindIPMI          = 0x00
	kindOpenRequest   = 0x10
	kindOpenResponse  = 0x11
	kindRAKP1         = 0x12
	kindRAKP2         = 0x13
	kindRAKP3         = 0x14
	kindRAKP4         = 0x15
	flagAuthenticated = 0x40
	flagEncrypted     = 0x80
)

// Why a datagram is dropped.
var (
	errShort    = errors.New("too short")
	errNotRMCP  = errors.New("not RMCP with IPMI")
	errVersion  = errors.New("of IPMI 1.5")
	errLength   = errors.New("of another length than it says")
	errKind     = errors.New("of another kind than expected")
	errOpen     = errors.New("not signed and encrypted")
	errSession  = errors.New("of another session")
	errTrailer  = errors.New("with a malformed trailer")
	errAuthCode = errors.New("with a wrong signature")
	errOld      = errors.New("an older one again")
	errCipher   = errors.New("malformed under its encryption")
	errMessage  = errors.New("with a malformed message")
	errQuestion = errors.New("the answer to another question")
)

// frame is a datagram in its parts. Nothing of it is believed yet.
type frame struct {
	kind     byte // payload type and flags
	session  uint32
	sequence uint32
	payload  []byte
	signed   []byte // from the session header to the end of the payload
	trailer  []byte // whatever follows
}

// parseFrame takes a datagram apart. The parts are views of it.
func parseFrame(b []byte) (frame, error) {
	switch {
	case len(b) < headerLength:
		return frame{}, errShort
	case b[0] != rmcpVersion || b[3] != rmcpClass: // an RMCP ACK has bit 7 of the class set
		return frame{}, errNotRMCP
	case b[4] != formatRMCPP:
		return frame{}, errVersion
	}
	f := frame{
		kind:     b[5],
		session:  binary.LittleEndian.Uint32(b[6:]),
		sequence: binary.LittleEndian.Uint32(b[10:]),
	}
	end := headerLength + int(binary.LittleEndian.Uint16(b[14:]))
	if len(b) < end {
		return frame{}, errLength
	}
	f.payload, f.signed, f.trailer = b[headerLength:end], b[signedFrom:end], b[end:]
	return f, nil
}
