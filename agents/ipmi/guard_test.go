package ipmi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"
)

const ourSession = 0x11223344

// testKeys are those of one session; both sides have the same.
func testKeys(t testing.TB, s suite, seed byte) *keys {
	t.Helper()
	_, k1, k2, err := crypto.DeriveSessionKeys(s.auth, bytes.Repeat([]byte{seed}, 16), bytes.Repeat([]byte{2}, 16), 0x13, "fencer", make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	return &keys{suite: s, k1: k1, k2: k2}
}

var status = question{types.CommandGetChassisStatus, 5}

// off is the answer "the chassis is off" to q.
func off(q question) []byte {
	return protocol.BuildIPMIResponse(uint8(q.command.NetFn), q.command.ID, q.sequence, 0, []byte{0, 0, 0})
}

// signTrailer signs the right answer with a trailer of its own, whose pad has 2 bytes.
func signTrailer(t testing.TB, k *keys, pad, next byte) []byte {
	t.Helper()
	b := seal(t, k, ourSession, 10, off(status))
	b = append(b[:headerLength+int(b[14])], 0xff, 0xff, pad, next)
	code, err := k.sign(b[4:])
	if err != nil {
		t.Fatal(err)
	}
	return append(b, code...)
}

// sealRaw signs and encrypts a plain text as it is: whole blocks, with its own pad or none.
func sealRaw(t testing.TB, k *keys, sequence uint32, plain []byte) []byte {
	t.Helper()
	iv := make([]byte, 16)
	cipher, err := crypto.EncryptAES(plain, k.k2[:16], iv)
	if err != nil {
		t.Fatal(err)
	}
	return signRaw(t, k, kindIPMI|flagEncrypted|flagAuthenticated, ourSession, sequence, append(iv, cipher...))
}

// signRaw signs any payload.
func signRaw(t testing.TB, k *keys, kind byte, session, sequence uint32, payload []byte) []byte {
	t.Helper()
	b := protocol.BuildRMCPPlusPacket(kind&0x3f, kind&0xc0, session, sequence, payload)
	pad := types.IntegrityPadLen(12, len(payload))
	b = append(b, bytes.Repeat([]byte{0xff}, pad)...)
	b = append(b, byte(pad), nextHeader)
	code, err := k.sign(b[4:])
	if err != nil {
		t.Fatal(err)
	}
	return append(b, code...)
}

func seal(t testing.TB, k *keys, session, sequence uint32, message []byte) []byte {
	t.Helper()
	b, err := k.seal(session, sequence, message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// forgeries are datagrams that say "off" in the BMC's name and must not be believed, each with
// why. The guard has seen sequence number 9 already.
func forgeries(t testing.TB, k, other *keys) map[string]struct {
	datagram []byte
	why      error
} {
	right := func() []byte { return seal(t, k, ourSession, 10, off(status)) }
	changed := func(change func([]byte) []byte) []byte { return change(right()) }
	ipmi15 := append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(off(status)))}, off(status)...)
	// The pad says 200 bytes of a block that has 16; or it is not 1, 2, 3.
	long := append(off(status)[:11:11], 1, 2, 3, 4, 200)
	wrong := append(off(status)[:11:11], 9, 9, 9, 9, 4)
	badSum := off(status)
	badSum[len(badSum)-1]++
	badSum1 := off(status)
	badSum1[2]++
	return map[string]struct {
		datagram []byte
		why      error
	}{
		"empty":                   {nil, errShort},
		"IPMI 1.5":                {ipmi15, errVersion},
		"IPMI 1.5, padded":        {append(ipmi15, make([]byte, 16)...), errVersion},
		"ASF":                     {changed(func(b []byte) []byte { b[3] = 6; return b }), errNotRMCP},
		"RMCP ACK":                {changed(func(b []byte) []byte { b[3] |= 0x80; return b }), errNotRMCP},
		"unauthenticated":         {protocol.BuildRMCPPlusPacket(kindIPMI, 0, 0, 0, off(status)), errOpen},
		"unauthenticated, ours":   {protocol.BuildRMCPPlusPacket(kindIPMI, 0, ourSession, 10, off(status)), errOpen},
		"signed, not encrypted":   {signRaw(t, k, kindIPMI|flagAuthenticated, ourSession, 10, off(status)), errOpen},
		"encrypted, not signed":   {changed(func(b []byte) []byte { b[5] &^= flagAuthenticated; return b }), errOpen},
		"another payload type":    {signRaw(t, k, 1|flagAuthenticated|flagEncrypted, ourSession, 10, right()[16:48]), errOpen},
		"RAKP 4 again":            {protocol.BuildRMCPPlusPacket(kindRAKP4, 0, 0, 0, make([]byte, 24)), errOpen},
		"the BMC's session":       {seal(t, k, 0x55667788, 10, off(status)), errSession},
		"no session":              {seal(t, k, 0, 10, off(status)), errSession},
		"another session's keys":  {seal(t, other, ourSession, 10, off(status)), errAuthCode},
		"no signature":            {changed(func(b []byte) []byte { return b[:len(b)-12] }), errTrailer},
		"half a signature":        {changed(func(b []byte) []byte { return b[:len(b)-4] }), nil},
		"zeros as signature":      {changed(func(b []byte) []byte { clear(b[len(b)-12:]); return b }), errAuthCode},
		"no trailer":              {changed(func(b []byte) []byte { return b[:16+int(b[14])] }), errTrailer},
		"signed wrong pad length": {signTrailer(t, k, 1, nextHeader), errTrailer},
		"signed next header":      {signTrailer(t, k, 2, 0), errTrailer},
		"longer than it says":     {changed(func(b []byte) []byte { return append(b, 0) }), nil},
		"shorter than it says":    {changed(func(b []byte) []byte { b[15] = 1; return b }), errLength},
		"seen already":            {seal(t, k, ourSession, 9, off(status)), errOld},
		"older":                   {seal(t, k, ourSession, 3, off(status)), errOld},
		"sequence number 0":       {seal(t, k, ourSession, 0, off(status)), errOld},
		"far behind":              {seal(t, k, ourSession, 1<<31+10, off(status)), errOld},
		"nothing encrypted":       {signRaw(t, k, 0xc0, ourSession, 10, nil), errCipher},
		"no block":                {signRaw(t, k, 0xc0, ourSession, 10, make([]byte, 16)), errCipher},
		"half a block":            {signRaw(t, k, 0xc0, ourSession, 10, make([]byte, 40)), errCipher},
		"pad beyond the message":  {sealRaw(t, k, 10, long), errCipher},
		"wrong pad":               {sealRaw(t, k, 10, wrong), errCipher},
		"empty message":           {seal(t, k, ourSession, 10, nil), errMessage},
		"short message":           {seal(t, k, ourSession, 10, off(status)[:7]), errMessage},
		"wrong checksum":          {seal(t, k, ourSession, 10, badSum), errMessage},
		"wrong first checksum":    {seal(t, k, ourSession, 10, badSum1), errMessage},
		"another command":         {seal(t, k, ourSession, 10, off(question{types.CommandChassisControl, 5})), errQuestion},
		"another function":        {seal(t, k, ourSession, 10, off(question{types.CommandGetDeviceID, 5})), errQuestion},
		"an earlier question":     {seal(t, k, ourSession, 10, off(question{types.CommandGetChassisStatus, 4})), errQuestion},
		"a request":               {seal(t, k, ourSession, 10, request()), errQuestion},
	}
}

// request is a Get Chassis Status as we send it, come back.
func request() []byte {
	r := types.IPMIRequest{ResponderAddr: consoleAddress, RequesterAddr: bmcAddress, NetFn: types.NetFnChassisRequest, Command: 1, RequesterSequence: 5, CommandData: []byte{0, 0, 0, 0}}
	r.ComputeChecksum()
	return r.Pack()
}

// TestGuard: nothing but the BMC's own, fresh answer to this question is an answer, and after
// all the forgeries it still is.
func TestGuard(t *testing.T) {
	for _, s := range []suite{suite17, suite3} {
		k, other := testKeys(t, s, 1), testKeys(t, s, 7)
		for name, f := range forgeries(t, k, other) {
			g := guard{keys: k, session: ourSession, newest: 9}
			r, err := g.answer(status, f.datagram)
			if r != nil || err == nil {
				t.Errorf("suite %d, %s: believed", s.id, name)
			} else if f.why != nil && !errors.Is(err, f.why) && s.id == 3 {
				t.Errorf("suite %d, %s: dropped as %v, want %v", s.id, name, err, f.why)
			}
			if r, err := g.answer(status, seal(t, k, ourSession, 11, off(status))); err != nil || len(r.Data) != 3 {
				t.Errorf("suite %d, after %s: the right answer is dropped as %v", s.id, name, err)
			}
		}
	}
}

// TestGuardForgedSequence: a forged sequence number must not shut the BMC's own answers out.
func TestGuardForgedSequence(t *testing.T) {
	k := testKeys(t, suite17, 1)
	g := guard{keys: k, session: ourSession, newest: 9}
	forged := seal(t, k, ourSession, 10, off(status))
	binary.LittleEndian.PutUint32(forged[10:], 1<<30)
	if _, err := g.answer(status, forged); !errors.Is(err, errAuthCode) || g.newest != 9 {
		t.Errorf("%v, newest %d", err, g.newest)
	}
}

// TestGuardEveryByte: a datagram with any one bit changed, or cut anywhere, is not believed.
func TestGuardEveryByte(t *testing.T) {
	for _, s := range []suite{suite17, suite3} {
		k := testKeys(t, s, 1)
		right := seal(t, k, ourSession, 10, off(status))
		for i := range right {
			for bit := range 8 {
				b := bytes.Clone(right)
				b[i] ^= 1 << bit
				g := guard{keys: k, session: ourSession}
				// The RMCP header is not signed, and of it only version and class matter.
				if _, err := g.answer(status, b); err == nil && i != 1 && i != 2 {
					t.Errorf("suite %d: believed with byte %d changed by bit %d", s.id, i, bit)
				}
			}
			g := guard{keys: k, session: ourSession}
			if _, err := g.answer(status, right[:i]); err == nil {
				t.Errorf("suite %d: believed when cut to %d bytes", s.id, i)
			}
		}
		g := guard{keys: k, session: ourSession}
		if _, err := g.answer(status, right); err != nil {
			t.Errorf("suite %d: %v", s.id, err)
		}
	}
}

// FuzzGuard: no datagram panics, and none is believed that was not sealed with the keys.
func FuzzGuard(f *testing.F) {
	k, other := testKeys(f, suite3, 1), testKeys(f, suite3, 7)
	for _, forged := range forgeries(f, k, other) {
		f.Add(forged.datagram)
	}
	right := seal(f, k, ourSession, 10, off(status))
	f.Add(right)
	f.Fuzz(func(t *testing.T, b []byte) {
		g := guard{keys: k, session: ourSession}
		if _, err := g.answer(status, b); err == nil && !bytes.Equal(b[4:], right[4:]) && !sealed(k, b) {
			t.Errorf("believed: %x", b)
		}
		// The same bytes as a plain text that the BMC itself signed: it may lie, not crash us.
		plain := slices.Concat(b, make([]byte, (16-len(b)%16)%16))
		if len(plain) > 0 && len(plain) < 1024 {
			g.answer(status, sealRaw(t, k, g.newest+1, plain))
		}
		g.answer(status, signRaw(t, k, 0xc0, ourSession, g.newest+2, b[:min(len(b), 1024)]))
	})
}

// sealed checks a signature by other code than the guard's.
func sealed(k *keys, b []byte) bool {
	if len(b) < 32 {
		return false
	}
	code, err := crypto.SessionIntegrityAuthCode(k.suite.sign, b[4:len(b)-12], k.k1, "")
	return err == nil && bytes.Equal(code, b[len(b)-12:])
}
