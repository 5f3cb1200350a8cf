package ipmi

import (
	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"
)

// guard decides which datagrams are the BMC's words in an established session. All others
// are dropped as if they had been lost: anybody can send datagrams in a BMC's name, and a
// forged "off" would be a false proof.
type guard struct {
	keys    *keys
	session uint32 // our side's session ID, random
	newest  uint32 // sequence number of the newest datagram accepted
}

// question is what an answer must match.
type question struct {
	command  types.Command
	sequence uint8 // the requester's sequence number, 6 bits
}

// answer gives what the BMC says to q.
func (g *guard) answer(q question, datagram []byte) (*types.IPMIResponse, error) {
	message, err := g.message(datagram)
	if err != nil {
		return nil, err
	}
	return q.match(message)
}

// message gives the content of an authentic datagram that is newer than all before it.
func (g *guard) message(datagram []byte) ([]byte, error) {
	f, err := parseFrame(datagram)
	switch {
	case err != nil:
		return nil, err
	case f.kind != kindIPMI|flagAuthenticated|flagEncrypted:
		return nil, errOpen
	case f.session != g.session:
		return nil, errSession
	}
	if err := g.keys.verify(f); err != nil {
		return nil, err
	}
	// One question is open at a time, so no answer is waited for that is older than one
	// already seen: a window as in IPMI 2.0, 6.12.13, would only let in what is stale.
	if int32(f.sequence-g.newest) <= 0 {
		return nil, errOld
	}
	g.newest = f.sequence
	return g.keys.decrypt(f)
}

// match reads a message (IPMI 2.0, 13.8) and holds it against the question. An answer to an
// earlier question, however authentic, says nothing about now.
func (q question) match(m []byte) (*types.IPMIResponse, error) {
	if len(m) < 8 || protocol.Checksum(m[:2]) != m[2] || protocol.Checksum(m[3:len(m)-1]) != m[len(m)-1] {
		return nil, errMessage
	}
	var r types.IPMIResponse
	if r.Unpack(m) != nil {
		return nil, errMessage
	}
	if r.NetFn != q.command.NetFn|1 || r.Command != q.command.ID || r.RequesterSequence != q.sequence {
		return nil, errQuestion
	}
	return &r, nil
}
