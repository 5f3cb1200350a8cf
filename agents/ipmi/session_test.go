package ipmi

import (
	"bytes"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"
)

// TestDatagrams: what is sent is signed, encrypted, addressed to the BMC's session, and has a
// sequence number of its own each time: BMCs drop what they have seen.
func TestDatagrams(t *testing.T) {
	for _, suite := range []suite{suite17, suite3} {
		k := testKeys(t, suite, 1)
		s := session{guard: guard{keys: k, session: ourSession}, bmc: 0x55667788}
		var last []byte
		for n := uint32(1); n <= 300; n++ {
			q := question{types.CommandChassisControl, uint8(n % 64)}
			b, err := s.datagram(q, []byte{0})
			if err != nil {
				t.Fatal(err)
			}
			f, err := parseFrame(b)
			if err != nil || f.kind != 0xc0 || f.session != 0x55667788 || f.sequence != n || k.verify(f) != nil {
				t.Fatalf("suite %d, datagram %d: %+v, %v, %v", suite.id, n, f, err, k.verify(f))
			}
			m, err := k.decrypt(f)
			want := []byte{0x20, 0x00, 0xe0, 0x81, q.sequence << 2, 0x02, 0x00}
			if err != nil || !bytes.Equal(m[:len(m)-1], want) {
				t.Fatalf("suite %d: message %x, %v, want %x", suite.id, m, err, want)
			}
			if bytes.Equal(b, last) {
				t.Fatal("the same again")
			}
			last = b
		}
	}
}
