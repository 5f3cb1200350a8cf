package snmp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The versions as they stand in a message (RFC 1157, RFC 1901, RFC 3412).
const (
	wireV1  = 0
	wireV2c = 1
	wireV3  = 3
)

// Tags of BER and of SNMP's PDUs (X.690; RFC 3416, section 3).
const (
	tagInteger     = 0x02
	tagOctetString = 0x04
	tagOID         = 0x06
	tagSequence    = 0x30
	tagResponse    = 0xa2
	tagReport      = 0xa8
)

// Bits of msgFlags (RFC 3412, section 6.4).
const (
	flagAuth  = 0x01
	flagPriv  = 0x02
	flagLevel = flagAuth | flagPriv
)

// message is what the guard needs to know of a datagram: whose it is, and what it answers.
type message struct {
	version   int64
	community string // v1, v2c
	id        int64  // what an answer repeats: the request ID (v1, v2c) or the message ID (v3)
	level     byte   // v3: flagAuth, flagPriv
	engine    string // v3: the authoritative engine's ID
	sealed    bool   // v3: what follows is encrypted
	pdu       byte   // the PDU's tag; 0 if sealed
	reason    string // OID of the first object of a Report
}

var errNotSNMP = errors.New("not an SNMP message")

// parseMessage reads a datagram as far as it is in the clear. It is strict where that
// decides whom an answer belongs to, and leaves the rest to the decoder behind it.
func parseMessage(datagram []byte) (m message, err error) {
	r := reader{rest: datagram}
	r = reader{rest: r.take(tagSequence), err: r.end()}
	m.version = r.integer()
	switch {
	case r.err == nil && (m.version == wireV1 || m.version == wireV2c):
		m.community = string(r.take(tagOctetString))
		m.id = m.parsePDU(&r)
	case r.err == nil && m.version == wireV3:
		m.parseV3(&r)
	default:
		return m, errNotSNMP
	}
	return m, r.err
}

// parseV3 reads the header (RFC 3412, section 6) and the engine ID out of the security
// parameters (RFC 3414, section 2.4).
func (m *message) parseV3(r *reader) {
	header := reader{rest: r.take(tagSequence), err: r.err}
	m.id = header.integer()
	header.integer() // the longest message that the sender takes
	if flags := header.take(tagOctetString); len(flags) == 1 {
		m.level = flags[0] & flagLevel
	} else {
		header.fail()
	}
	if header.integer() != 3 { // the user-based security model
		header.fail()
	}
	parameters := reader{rest: r.take(tagOctetString), err: errors.Join(header.end(), r.err)}
	parameters = reader{rest: parameters.take(tagSequence), err: parameters.end()}
	m.engine = string(parameters.take(tagOctetString))
	if parameters.err != nil || r.err != nil {
		r.fail()
		return
	}
	if r.next() == tagOctetString {
		m.sealed = true
		r.take(tagOctetString)
		r.err = r.end()
		return
	}
	scoped := reader{rest: r.take(tagSequence), err: r.end()}
	scoped.take(tagOctetString) // context engine
	scoped.take(tagOctetString) // context
	m.parsePDU(&scoped)
	r.err = scoped.err
}

// parsePDU reads a PDU's kind and request ID, and the first object of a Report.
func (m *message) parsePDU(r *reader) (requestID int64) {
	m.pdu = r.next()
	pdu := reader{rest: r.take(m.pdu), err: r.end()}
	requestID = pdu.integer()
	status := pdu.integer()
	pdu.integer() // the index, which is checked where it is used
	// A status beyond RFC 3416 must not become "no error" in fewer bits.
	if pdu.err == nil && (status < 0 || status > 255) {
		pdu.fail()
	}
	bindings := reader{rest: pdu.take(tagSequence), err: pdu.end()}
	if m.pdu == tagReport {
		first := reader{rest: bindings.take(tagSequence), err: bindings.err}
		m.reason, bindings.err = oidText(first.take(tagOID)), first.err
	}
	r.err = bindings.err
	return requestID
}

// reader takes BER apart, value by value. After the first error all it gives is empty.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errNotSNMP
	}
}

// end is the error so far, and one if anything is left.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail()
	}
	return r.err
}

// next is the tag of the next value; 0 at the end.
func (r *reader) next() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// take gives the contents of the next value, which must have this tag. Only definite lengths
// of up to four bytes are read (RFC 3417, section 8).
func (r *reader) take(tag byte) []byte {
	if r.err != nil || len(r.rest) < 2 || r.rest[0] != tag {
		r.fail()
		return nil
	}
	length, head := int(r.rest[1]), 2
	if length > 127 {
		more := length - 128
		if more == 0 || more > 4 || len(r.rest) < 2+more {
			r.fail()
			return nil
		}
		length = 0
		for _, b := range r.rest[2 : 2+more] {
			length = length<<8 | int(b)
		}
		head += more
	}
	if length > len(r.rest)-head {
		r.fail()
		return nil
	}
	value := r.rest[head : head+length]
	r.rest = r.rest[head+length:]
	return value
}

// integer takes an INTEGER of up to 8 bytes.
func (r *reader) integer() int64 {
	b := r.take(tagInteger)
	if r.err != nil || len(b) == 0 || len(b) > 8 {
		r.fail()
		return 0
	}
	n := int64(int8(b[0]))
	for _, x := range b[1:] {
		n = n<<8 | int64(x)
	}
	return n
}

// oidText writes an encoded OID (X.690, section 8.19); one that is broken becomes a text
// that is no OID.
func oidText(b []byte) string {
	var text strings.Builder
	var n uint64
	for i, x := range b {
		n = n<<7 | uint64(x&0x7f)
		if n > 1<<32 {
			return fmt.Sprintf("%x", b)
		}
		if x&0x80 != 0 {
			if i == len(b)-1 {
				return fmt.Sprintf("%x", b)
			}
			continue
		}
		if text.Len() == 0 {
			first := min(n/40, 2)
			text.WriteString(strconv.FormatUint(first, 10))
			n -= first * 40
		}
		text.WriteString("." + strconv.FormatUint(n, 10))
		n = 0
	}
	return text.String()
}
