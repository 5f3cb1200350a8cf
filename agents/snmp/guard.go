package snmp

import (
	"errors"
	"fmt"
	"net"
)

// guard stands between the socket and gosnmp and lets only answers to the last request pass.
//
// gosnmp alone ends its wait at the first datagram that it cannot read, takes an answer with
// request ID 0 for one to any request, decodes answers below the configured security level,
// derives keys (and keeps them for ever) for every engine ID that a stranger sends, and
// gives one and the same error for an unknown user and a wrong password.
//
// It is a net.Conn but no net.PacketConn, on a connected UDP socket: the kernel drops what comes
// from another address.
type guard struct {
	net.Conn
	level byte // v3: the security level that answers must have

	sent  message // the last request
	stray int     // datagrams that answer nothing
	lower int     // v3: answers below the level
}

// errStranger: gosnmp sent something that the guard cannot tell answers of.
var errStranger = errors.New("a request that cannot be guarded")

func (g *guard) Write(datagram []byte) (int, error) {
	m, err := parseMessage(datagram)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errStranger, err)
	}
	g.sent = m
	return g.Conn.Write(datagram)
}

// Read gives the next datagram that answers the last request. An unauthenticated Report is
// no datagram but a *reportError: gosnmp would only say that it is not authentic.
func (g *guard) Read(b []byte) (int, error) {
	for {
		n, err := g.Conn.Read(b)
		if err != nil {
			return n, err
		}
		m, err := parseMessage(b[:n])
		switch {
		case err != nil || !g.answers(m):
			g.stray++
		case m.version != wireV3:
			return n, nil
		case g.sent.engine == "": // discovery: RFC 3414, section 4
			if m.pdu == tagReport {
				return n, nil
			}
			g.lower++
		case m.level == g.level && m.engine == g.sent.engine && m.sealed == (g.level&flagPriv != 0):
			return n, nil
		case m.pdu == tagReport && m.level == flagAuth && m.engine == g.sent.engine:
			return n, nil // out of the time window: gosnmp proves it, and sends again
		case m.pdu == tagReport && m.level == 0:
			return 0, &reportError{oid: m.reason}
		default:
			g.lower++
		}
	}
}

// answers reports whether m carries what an answer to the last request repeats.
func (g *guard) answers(m message) bool {
	if m.version != g.sent.version || m.id != g.sent.id {
		return false
	}
	return m.version == wireV3 || m.pdu == tagResponse && m.community == g.sent.community
}
