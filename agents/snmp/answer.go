package snmp

import (
	"fmt"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// checkAnswer looks at what gosnmp leaves unchecked: that it is an answer, without error
// status, with exactly the objects asked for in their order, each of them there.
func checkAnswer(p *gosnmp.SnmpPacket, set bool, objects ...string) ([]gosnmp.SnmpPDU, error) {
	if err := checkStatus(p, set, objects...); err != nil {
		return nil, err
	}
	if len(p.Variables) != len(objects) {
		return nil, fmt.Errorf("%w: %d objects instead of %d", agents.ErrProtocol, len(p.Variables), len(objects))
	}
	for i, v := range p.Variables {
		if plain(v.Name) != objects[i] {
			return nil, fmt.Errorf("%w: asked for %s, answered %s", agents.ErrProtocol, objects[i], clip(plain(v.Name)))
		}
	}
	for i, v := range p.Variables {
		switch v.Type {
		case gosnmp.NoSuchObject, gosnmp.NoSuchInstance, gosnmp.EndOfMibView, gosnmp.Null:
			return nil, &absentError{objects[i]}
		}
	}
	return p.Variables, nil
}

// checkStatus sorts out what is no answer, and answers with an error status.
func checkStatus(p *gosnmp.SnmpPacket, set bool, objects ...string) error {
	switch {
	case p == nil:
		return fmt.Errorf("%w: nothing in it", agents.ErrProtocol)
	case p.PDUType != gosnmp.GetResponse:
		return fmt.Errorf("%w: %v instead of a response", agents.ErrProtocol, p.PDUType)
	case p.RequestID == 0: // never asked with; gosnmp takes it for any request's
		return fmt.Errorf("%w: request ID 0", agents.ErrProtocol)
	case p.Error != gosnmp.NoError:
		object := fmt.Sprintf("object %d of the request", p.ErrorIndex)
		if i := int(p.ErrorIndex); i >= 1 && i <= len(objects) {
			object = objects[i-1]
		}
		return &statusError{set: set, status: p.Error, object: object}
	}
	return nil
}

// integer gives the value of an INTEGER; no other type will do.
func integer(v gosnmp.SnmpPDU) (int, error) {
	n, ok := v.Value.(int)
	if v.Type != gosnmp.Integer || !ok {
		return 0, fmt.Errorf("%w: %s is of type %v, not INTEGER", agents.ErrProtocol, plain(v.Name), v.Type)
	}
	return n, nil
}

// text gives the value of an OCTET STRING without padding.
func text(v gosnmp.SnmpPDU) (string, error) {
	b, ok := v.Value.([]byte)
	if v.Type != gosnmp.OctetString || !ok {
		return "", fmt.Errorf("%w: %s is of type %v, not OCTET STRING", agents.ErrProtocol, plain(v.Name), v.Type)
	}
	return tidy(string(b)), nil
}

// identifier gives the value of an OBJECT IDENTIFIER.
func identifier(v gosnmp.SnmpPDU) (string, error) {
	s, ok := v.Value.(string)
	if v.Type != gosnmp.ObjectIdentifier || !ok || !isOID(plain(s)) {
		return "", fmt.Errorf("%w: %s is of type %v, not OBJECT IDENTIFIER", agents.ErrProtocol, plain(v.Name), v.Type)
	}
	return plain(s), nil
}
