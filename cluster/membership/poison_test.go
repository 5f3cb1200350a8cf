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

// TestPoisonedGossip: whoever has the key can evict a node with one message that nothing can
// refute. Contact does not care, so that whoever compares the two sees that they disagree; and
// it is forgotten.
func TestPoisonedGossip(t *testing.T) {
	const limit = 10 * time.Second
	slowest := time.Duration(0)
	for _, kind := range []byte{msgDead, msgSuspect} {
		for _, n := range []int{3, 5} {
			for seed := range uint64(4) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, time.Second, n, seed)
					poison := gossip(kind, "Incarnation", uint32(math.MaxUint32), "Node", "node1", "From", "node2")
					if err := c.nodes["node0"].link.Send("node2", poison); err != nil {
						t.Fatal(err)
					}
					c.within(2*c.detection, "the poison works", func() bool {
						return c.nodes["node0"].members.View()["node1"].State == Dead
					})
					evicted := time.Now()
					c.within(limit, "whole again", func() bool {
						for _, name := range []string{"node0", "node2"} {
							if at, ok := c.nodes[name].link.Contact("node1"); !ok || time.Since(at) > c.detection/2 {
								t.Fatalf("%s: the eviction ended the contact, %s ago", name, time.Since(at))
							}
						}
						return c.whole()
					})
					slowest = max(slowest, time.Since(evicted))
					time.Sleep(limit)
					if !c.whole() {
						t.Error("it came back")
					}
				})
			}
		}
	}
	t.Logf("whole again after %s at most", slowest)
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
