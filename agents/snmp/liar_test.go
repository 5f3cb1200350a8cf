package snmp

import (
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// liar is a PDU of the family apc-rpdu2 that answers what it is told to. It speaks through
// gosnmp, as the agent does: that SNMP itself is right is the business of snmpd's tests.
type liar struct {
	conn   net.PacketConn
	engine string
	user   *gosnmp.UsmSecurityParameters // version 3

	mu      sync.Mutex
	objects map[string]gosnmp.SnmpPDU
	sets    int
	// tamper, if not nil, gives the datagrams that go back instead of answer.
	tamper func(request, answer *gosnmp.SnmpPacket) [][]byte
	done   chan struct{}
	// With stallAt above 0, datagrams from that one on are not answered; stalled says so.
	stallAt, got int
	stalled      chan struct{}
}

const (
	liarStatus  = enterprises + "318.1.1.26.9.2.3.1.5."
	liarName    = enterprises + "318.1.1.26.9.2.3.1.3."
	liarControl = enterprises + "318.1.1.26.9.2.4.1.5."
)

func startLiar(t testing.TB, tamper func(request, answer *gosnmp.SnmpPacket) [][]byte) *liar {
	l := &liar{conn: listen(t), engine: "liar-engine", tamper: tamper,
		objects: map[string]gosnmp.SnmpPDU{}, done: make(chan struct{}), stalled: make(chan struct{}, 1)}
	l.user = with3("", snmppeer.Fencer).usm(gosnmp.AuthPriv)
	l.put(gosnmp.SnmpPDU{Name: sysObjectID, Type: gosnmp.ObjectIdentifier, Value: enterprises + "318.1.3.4.6"})
	for _, n := range []string{"1", "2", "3", "4"} {
		l.put(gosnmp.SnmpPDU{Name: liarStatus + n, Type: gosnmp.Integer, Value: 2})
		l.put(gosnmp.SnmpPDU{Name: liarControl + n, Type: gosnmp.Integer, Value: 1})
		l.put(gosnmp.SnmpPDU{Name: liarName + n, Type: gosnmp.OctetString, Value: "outlet" + n})
	}
	go l.serve()
	t.Cleanup(func() { l.conn.Close(); <-l.done })
	return l
}

func (l *liar) address() string { return l.conn.LocalAddr().String() }

func (l *liar) put(v gosnmp.SnmpPDU) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[v.Name] = v
}

func (l *liar) setTamper(f func(request, answer *gosnmp.SnmpPacket) [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tamper = f
}

// stall stops answering from the n-th datagram on; 0 goes on.
func (l *liar) stall(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stallAt = n
}

func (l *liar) setCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sets
}

func (l *liar) serve() {
	defer close(l.done)
	b := make([]byte, 65535)
	for {
		n, from, err := l.conn.ReadFrom(b)
		if err != nil {
			return
		}
		for _, datagram := range l.handle(b[:n]) {
			l.conn.WriteTo(datagram, from)
		}
	}
}

func (l *liar) handle(datagram []byte) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got++; l.stallAt > 0 && l.got >= l.stallAt {
		select {
		case l.stalled <- struct{}{}:
		default:
		}
		return nil
	}
	g := &gosnmp.GoSNMP{Version: gosnmp.Version2c}
	if m, _ := parseMessage(datagram); m.version == wireV3 {
		g = &gosnmp.GoSNMP{Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel, MsgFlags: gosnmp.AuthPriv, SecurityParameters: l.user.Copy()}
		if m.engine == "" {
			return [][]byte{l.announce(m)}
		}
	}
	request, err := g.SnmpDecodePacket(slices.Clone(datagram))
	if err != nil {
		return nil
	}
	answer := *request
	answer.PDUType, answer.MsgFlags = gosnmp.GetResponse, request.MsgFlags&gosnmp.AuthPriv
	answer.Variables = nil
	if request.PDUType == gosnmp.GetBulkRequest {
		request.Variables = l.following(plain(request.Variables[0].Name), int(request.MaxRepetitions))
	}
	for _, v := range request.Variables {
		name := plain(v.Name)
		if request.PDUType == gosnmp.SetRequest {
			l.sets++
			l.objects[name] = v
			answer.Variables = append(answer.Variables, v)
			continue
		}
		have, ok := l.objects[name]
		if !ok {
			have = gosnmp.SnmpPDU{Name: name, Type: gosnmp.NoSuchInstance}
		}
		answer.Variables = append(answer.Variables, have)
	}
	if l.tamper != nil {
		return l.tamper(request, &answer)
	}
	return encode(&answer)
}

// following are the next rows, and the end.
func (l *liar) following(oid string, most int) (rows []gosnmp.SnmpPDU) {
	for _, name := range slices.SortedFunc(maps.Keys(l.objects), compareOID) {
		if compareOID(name, oid) > 0 && len(rows) < most {
			rows = append(rows, gosnmp.SnmpPDU{Name: name})
		}
	}
	if len(rows) < most {
		rows = append(rows, gosnmp.SnmpPDU{Name: oid, Type: gosnmp.EndOfMibView})
		l.objects[oid] = rows[len(rows)-1]
	}
	return rows
}

// announce answers the engine discovery (RFC 3414, section 4).
func (l *liar) announce(m message) []byte {
	return report(uint32(m.id), l.engine, unknownEngine)[0]
}

// report is an unauthenticated Report.
func report(id uint32, engine, oid string) [][]byte {
	return encode(&gosnmp.SnmpPacket{Version: gosnmp.Version3, MsgID: id, PDUType: gosnmp.Report, ContextEngineID: engine,
		SecurityModel:      gosnmp.UserSecurityModel,
		SecurityParameters: &gosnmp.UsmSecurityParameters{AuthoritativeEngineID: engine, AuthoritativeEngineBoots: 1, AuthoritativeEngineTime: 1},
		Variables:          []gosnmp.SnmpPDU{{Name: oid, Type: gosnmp.Counter32, Value: uint32(1)}}})
}

func encode(packets ...*gosnmp.SnmpPacket) (datagrams [][]byte) {
	for _, p := range packets {
		b, err := p.MarshalMsg()
		if err != nil {
			panic(err)
		}
		datagrams = append(datagrams, b)
	}
	return datagrams
}

func integerObject(below string, value int) gosnmp.SnmpPDU {
	return gosnmp.SnmpPDU{Name: enterprises + below, Type: gosnmp.Integer, Value: value}
}
