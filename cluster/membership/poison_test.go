package membership

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// gossip makes a message as memberlist does: its type, then a map in MessagePack.
func gossip(kind byte, fields ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields)/2)}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(append(b, 0xa0|byte(len(f))), f...)
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), f)
		case []byte:
			b = append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(f))), f...)
		}
	}
	return b
}

// TestPoisonedGossip: whoever has the key can slander a healthy node. What it could not refute is not believed, what it can
// refute it refutes, and of what it is made to say nothing is left after a while; contact does not care for any of it.
func TestPoisonedGossip(t *testing.T) {
	const limit = 10 * time.Second
	poison := func(kind byte, number uint32) []byte {
		if kind == msgAlive {
			return gossip(kind, "Incarnation", number, "Node", "node1", "Addr", []byte(syntheticIP("node1")), "Port", uint32(gossipPort),
				"Meta", []byte{metaPresent}, "Vsn", []byte{1, 5, 2, 0, 0, 0})
		}
		return gossip(kind, "Incarnation", number, "Node", "node1", "From", "node2")
	}
	for name, p := range map[string]struct {
		packet   []byte
		times    uint32
		believed bool
	}{
		"death, the highest number":        {poison(msgDead, math.MaxUint32), 300, false},
		"suspicion, the highest number":    {poison(msgSuspect, math.MaxUint32), 300, false},
		"death, the one before":            {poison(msgDead, math.MaxUint32-1), 300, true},
		"life, the highest number":         {poison(msgAlive, math.MaxUint32), 300, false},
		"life, the highest number, once":   {poison(msgAlive, math.MaxUint32), 1, false},
		"death, numbers up to the highest": {nil, 300, true},
	} {
		t.Run(name, func(t *testing.T) {
			slowest := time.Duration(0)
			for seed := range uint64(4) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, time.Second, 3+2*int(seed%2), seed)
					began := time.Now()
					for i := range p.times {
						packet := p.packet
						if packet == nil {
							packet = poison(msgDead, math.MaxUint32-p.times+1+i)
						}
						for _, to := range c.names[1:] {
							if err := c.nodes["node0"].link.Send(to, packet); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(c.detection / 100)
					}
					if d := c.deaths(began); (len(d) > 0) != p.believed {
						t.Errorf("gossip believed it: %v", d)
					}
					if at, ok := c.nodes["node2"].link.Contact("node1"); !ok || time.Since(at) > c.detection/2 {
						t.Errorf("it ended the contact, %s ago", time.Since(at))
					}
					slowest = max(slowest, c.within(limit, "whole again", c.whole))
					healed := time.Now()
					time.Sleep(limit)
					if d := c.deaths(healed); len(d) > 0 {
						t.Errorf("it came back: %v", d)
					}
					// Death works as before, and so does what follows.
					c.network.Isolate("node1")
					time.Sleep(3 * c.detection)
					if s := c.nodes["node2"].members.View()["node1"].State; s != Dead {
						t.Errorf("cut off, and %s", s)
					}
					c.network.HealAll()
					slowest = max(slowest, c.within(limit, "whole after a cut", c.whole))
				})
			}
			t.Logf("whole again after %s at most", slowest)
		})
	}
}

// TestCompressionBomb: a small message that would unpack to a huge one is not unpacked.
func TestCompressionBomb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 2, 1)
		bomb := gossip(msgCompressed, "Algo", uint32(0), "Buf", bytes.Repeat([]byte{0xff, 0x00}, 400))
		from, to := c.nodes["node0"], c.nodes["node1"]
		for _, packet := range [][]byte{bomb, checksummed(bomb), compound(bomb, bomb)[:min(len(compound(bomb, bomb)), 1000)]} {
			if err := from.link.Send(to.name, packet); err != nil {
				t.Fatal(err)
			}
			if plainPacket(packet) {
				t.Error("memberlist would unpack it")
			}
		}
		time.Sleep(c.detection)
		if !c.whole() {
			t.Error("it cost a node")
		}
	})
}
