package snmp

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

const (
	// bulk is how many rows are asked for at once; more would not fit the small buffers of PDUs.
	bulk = 16
	// mostRows bounds a table: no PDU has more outlets, and a device that lies has no end.
	mostRows = 1024
)

// walk calls visit for each outlet of a column. OIDs must grow, so it ends.
func (a *agent) walk(ctx context.Context, c column, visit func(outlet, gosnmp.SnmpPDU) error) error {
	root := c.root()
	last := root
	for rows := 0; rows < mostRows; {
		p, err := a.ask(ctx, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) {
			if g.Version == gosnmp.Version1 {
				return g.GetNext([]string{last})
			}
			return g.GetBulk([]string{last}, 0, bulk)
		})
		if err != nil {
			return err
		}
		if err := checkStatus(p, false, last); errors.Is(err, errNoObject) {
			return nil // how version 1 says that nothing follows
		} else if err != nil {
			return err
		}
		if len(p.Variables) == 0 {
			return fmt.Errorf("%w: nothing follows %s, not even the end", agents.ErrProtocol, last)
		}
		for _, v := range p.Variables {
			oid := plain(v.Name)
			if v.Type == gosnmp.EndOfMibView || !below(oid, root) {
				return nil
			}
			if compareOID(oid, last) <= 0 {
				return fmt.Errorf("%w: %s follows %s", agents.ErrProtocol, clip(oid), last)
			}
			last = oid
			rows++
			if o, ok := c.match(oid); ok {
				if err := visit(o, v); err != nil {
					return err
				}
			}
		}
	}
	return fmt.Errorf("%w: %s has no end", agents.ErrProtocol, root)
}
