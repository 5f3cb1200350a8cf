package snmp

import (
	"context"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// BenchmarkOff opens, switches off, reads back until off, and closes, as for one fencing.
func BenchmarkOff(b *testing.B) {
	for _, version := range []string{"2c", "3"} {
		b.Run(version, func(b *testing.B) {
			p := snmppeer.Start(b, "apc-rpdu")
			o := with2c(p.Address(), "private")
			if version == version3 {
				o = with3(p.Address(), snmppeer.Fencer)
			}
			for b.Loop() {
				p.SetOutlet(3, "on")
				h, err := o.Open(nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Off(context.Background(), "3=outlet3"); err != nil {
					b.Fatal(err)
				}
				for r := (agents.Reading{}); r.State != agents.Off; {
					if r, err = h.Status(context.Background(), "3=outlet3"); err != nil {
						b.Fatal(err)
					}
				}
				h.Close(context.Background())
			}
		})
	}
}
