package membership

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"testing"

	"github.com/hashicorp/memberlist"
)

// compound is a packet as memberlist makes it from several messages.
func compound(messages ...[]byte) []byte {
	b := []byte{msgCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	return append(b, bytes.Join(messages, nil)...)
}

func checksummed(b []byte) []byte { return append([]byte{msgChecksum, 0, 0, 0, 0}, b...) }

func TestPlainPacket(t *testing.T) {
	ping, alive := []byte{msgPing, 1}, []byte{msgAlive, 2}
	compressed := []byte{msgCompressed, 3}
	for _, tc := range []struct {
		name   string
		packet []byte
		want   bool
	}{
		{"empty", nil, false},
		{"ping", ping, true},
		{"ping with checksum", checksummed(ping), true},
		{"compound", compound(ping, alive), true},
		{"compound with checksum", checksummed(compound(ping, alive)), true},
		{"truncated compound", compound(ping, alive)[:7], true},
		{"compressed", compressed, false},
		{"compressed with checksum", checksummed(compressed), false},
		{"compressed in a compound", compound(ping, compressed), false},
		{"compound in a compound", compound(compound(compressed)), false},
		{"user message", []byte{msgUser, 1}, false},
		{"encrypted", []byte{msgEncrypted, 1}, false},
		{"label", []byte{244, 1}, false},
		{"death", gossip(msgDead, "Incarnation", uint32(math.MaxUint32-1)), true},
		{"death, nothing refutes it", gossip(msgDead, "Incarnation", uint32(math.MaxUint32)), false},
		{"suspicion in a compound, nothing refutes it", compound(ping, gossip(msgSuspect, "Incarnation", uint32(math.MaxUint32))), false},
		{"death as an array, nothing refutes it", []byte{msgDead, 0x93, 0xce, 0xff, 0xff, 0xff, 0xff, 0xa1, 'a', 0xa1, 'b'}, false},
		{"death with a wide number, nothing refutes it", append(append([]byte{msgDead, 0x81, 0xab}, "Incarnation"...), 0xcf, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff), false},
		{"checksum only", checksummed(nil), false},
		{"checksum twice", checksummed(checksummed(ping)), false},
	} {
		if got := plainPacket(tc.packet); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// states is a push-pull about one node.
func states(incarnation uint32, s memberlist.NodeStateType) []byte {
	b := gossip(msgPushPull, "Nodes", uint32(1), "UserStateLen", uint32(0))
	return append(b, gossip(0, "Name", "node1", "Incarnation", incarnation, "State", uint32(s))[1:]...)
}

func FuzzCheckStates(f *testing.F) {
	f.Add(states(1, memberlist.StateAlive)[1:])
	f.Add(states(math.MaxUint32, memberlist.StateDead)[1:])
	f.Fuzz(func(t *testing.T, b []byte) { _ = checkStates(bytes.NewReader(b)) })
}

func FuzzPlainPacket(f *testing.F) {
	f.Add([]byte{msgPing})
	f.Add(compound([]byte{msgPing}, []byte{msgCompressed}))
	f.Add(checksummed(compound(gossip(msgDead, "Incarnation", uint32(math.MaxUint32), "Node", "node1", "From", "node2"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if plainPacket(b) && len(b) > 0 && (b[0] == msgCompressed || b[0] == msgUser || b[0] == msgEncrypted) {
			t.Errorf("%x is let through", b)
		}
	})
}

func TestStreamRefusesCompressionAndFloods(t *testing.T) {
	for _, tc := range []struct {
		name string
		sent []byte
		want int // bytes that get through
	}{
		{"push-pull", states(uint32(1), 0), len(states(uint32(1), 0))},
		{"push-pull, nothing refutes it", states(uint32(math.MaxUint32), memberlist.StateDead), 0},
		{"push-pull of a million", gossip(msgPushPull, "Nodes", uint32(1<<20), "UserStateLen", uint32(0)), 0},
		{"compressed", []byte{msgCompressed, 1, 2}, 0},
		{"flood", append([]byte{msgPing}, make([]byte, 2*maxStream)...), maxStream},
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write(tc.sent)
			_ = far.Close()
		}()
		s := &stream{Conn: near, transport: &transport{open: map[*stream]struct{}{}}}
		got, buf := 0, make([]byte, 4096)
		for {
			n, err := s.Read(buf)
			got += n
			if err != nil {
				break
			}
		}
		_ = s.Close()
		if got < tc.want || got > tc.want+len(buf) {
			t.Errorf("%s: %d bytes got through, want %d", tc.name, got, tc.want)
		}
	}
}
