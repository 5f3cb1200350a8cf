package ipmi

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"
)

// handshake opens a session by RMCP+ Open Session and the four RAKP messages (IPMI 2.0, 13.15
// to 13.24). Until its end nothing is authentic but what bears an HMAC of the password: a
// forged datagram can be in the way, and can neither open a session nor choose its strength.
type handshake struct {
	*wire
	target target
	suite  suite
	wait   time.Duration

	ours, bmc uint32 // session IDs
	ourRandom [16]byte
	bmcRandom [16]byte
	guid      [16]byte
	role      byte // the level asked for, as it is in RAKP message 1 and in the HMACs
	sik       []byte
	keys      *keys // set when RAKP message 3 goes out
}

// open gives a session.
func (h *handshake) open(ctx context.Context) (*session, error) {
	for _, step := range []func(context.Context) error{h.openSession, h.rakp1, h.rakp3} {
		if err := step(ctx); err != nil {
			h.giveUp()
			return nil, err
		}
	}
	return h.session(), nil
}

// giveUp gives the slot at the BMC free, as far as that is possible. A handshake that stops half
// way holds it until the BMC loses patience, half a minute or more.
func (h *handshake) giveUp() {
	if h.bmc == 0 {
		return
	}
	if h.keys != nil { // the BMC may have opened the session, and only its answer was lost
		h.session().farewell()
	}
	refusal := &rmcpplus.RAKPMessage3{RmcpStatusCode: types.RmcpStatusCodeInvalidIntegrityCheckValue, ManagedSystemSessionID: h.bmc}
	h.conn.Write(protocol.BuildRMCPPlusPacket(kindRAKP3, 0, 0, 0, refusal.Pack()))
}

func (h *handshake) session() *session {
	return &session{wire: h.wire, bmc: h.bmc, level: h.target.level, wait: h.wait,
		guard: guard{keys: h.keys, session: h.ours}}
}

// step sends one message and takes the answer of the kind that belongs to it.
func (h *handshake) step(ctx context.Context, name string, kind byte, message []byte, take func(payload []byte) error) error {
	datagram := protocol.BuildRMCPPlusPacket(kind, 0, 0, 0, message)
	var wrong error // what is wrong if nothing better comes
	// BMCs take their time for the cryptography, and a repeated Open Session takes a second slot.
	waits := []time.Duration{2 * h.wait, 2 * h.wait, 4 * h.wait}
	err := h.exchange(ctx, waits, func() ([]byte, error) {
		if wrong != nil {
			return nil, wrong
		}
		return datagram, nil
	}, func(b []byte) (bool, error) {
		err := h.answer(name, kind+1, b, take)
		switch {
		case errors.Is(err, errPassword), errors.Is(err, errBMCKey):
			// Or somebody else signed it: the BMC has a moment to do better.
			wrong = err
			h.conn.SetReadDeadline(time.Now().Add(h.wait))
			return false, err
		case slices.Contains(notAnswers, err):
			return false, err
		}
		return true, err
	})
	if wrong != nil && errors.As(err, new(*silence)) && ctx.Err() == nil {
		return wrong
	}
	return err
}

// What is refused means something else in each message: algorithms are chosen in the first,
// and the name is looked up in the second.
const (
	openMessage = "Open Session"
	nameMessage = "RAKP message 1"
	keyMessage  = "RAKP message 3"
)

// notAnswers are the datagrams of the handshake that are dropped as if they had been lost.
var notAnswers = []error{errShort, errNotRMCP, errVersion, errLength, errKind, errMessage, errSession}

// answer reads a datagram that should be of the kind given.
func (h *handshake) answer(name string, kind byte, datagram []byte, take func([]byte) error) error {
	f, err := parseFrame(datagram)
	if err != nil {
		return err
	}
	if f.kind != kind {
		return errKind
	}
	if err := h.status(name, f.payload); err != nil {
		return err
	}
	return take(f.payload)
}

// status reads what all answers of the handshake begin with: tag, status, and our session ID
// (some BMCs end a refusal after the status).
func (h *handshake) status(name string, p []byte) error {
	if len(p) < 2 {
		return errMessage
	}
	status := types.RmcpStatusCode(p[1])
	if len(p) >= 8 {
		id := binary.LittleEndian.Uint32(p[4:])
		if id != h.ours && (id != 0 || status == types.RmcpStatusCodeNoErrors) {
			return errSession
		}
	}
	if status != types.RmcpStatusCodeNoErrors {
		return &setupError{name, status}
	}
	return nil
}

func (h *handshake) openSession(ctx context.Context) error {
	for h.ours == 0 {
		h.ours = binary.LittleEndian.Uint32(crypto.RandomBytes(4))
	}
	auth, sign, crypt := rmcpplus.NewAlgorithmPayloads(h.suite.auth, h.suite.sign, h.suite.crypt)
	request := &rmcpplus.OpenSessionRequest{
		RequestedMaximumPrivilegeLevel: h.target.level,
		RemoteConsoleSessionID:         h.ours,
		AuthenticationPayload:          auth,
		IntegrityPayload:               sign,
		ConfidentialityPayload:         crypt,
	}
	return h.step(ctx, openMessage, kindOpenRequest, request.Pack(), h.opened)
}

// opened reads the Open Session Response (IPMI 2.0, 13.18).
func (h *handshake) opened(p []byte) error {
	var r rmcpplus.OpenSessionResponse
	if r.Unpack(p) != nil || r.ManagedSystemSessionID == 0 {
		return errMessage
	}
	if types.AuthAlg(r.AuthAlg) != h.suite.auth || types.IntegrityAlg(r.IntegrityAlg) != h.suite.sign || types.CryptAlg(r.CryptAlg) != h.suite.crypt {
		return fmt.Errorf("%w: the BMC offers other algorithms instead", errSuite)
	}
	h.bmc = r.ManagedSystemSessionID
	return nil
}

func (h *handshake) rakp1(ctx context.Context) error {
	h.ourRandom = [16]byte(crypto.RandomBytes(16))
	request := &rmcpplus.RAKPMessage1{
		ManagedSystemSessionID:         h.bmc,
		RemoteConsoleRandomNumber:      h.ourRandom,
		RequestedMaximumPrivilegeLevel: h.target.level,
		NameOnlyLookup:                 true, // else a BMC takes the first user of that level
		UsernameLength:                 uint8(len(h.target.username)),
		Username:                       []byte(h.target.username),
	}
	h.role = request.Role()
	return h.step(ctx, nameMessage, kindRAKP1, request.Pack(), h.rakp2)
}

// rakp2 reads RAKP message 2, by which the BMC proves that it knows the password (13.21).
func (h *handshake) rakp2(p []byte) error {
	r := rmcpplus.RAKPMessage2{AuthAlg: h.suite.auth}
	if r.Unpack(p) != nil {
		return errMessage
	}
	want, err := crypto.RAKP2AuthCode(h.suite.auth, h.ours, h.bmc, h.ourRandom[:], r.ManagedSystemRandomNumber[:],
		r.ManagedSystemGUID[:], h.role, h.target.username, h.target.password)
	if err != nil || len(want) == 0 || !hmac.Equal(want, r.KeyExchangeAuthenticationCode) {
		return errPassword
	}
	h.bmcRandom, h.guid = r.ManagedSystemRandomNumber, r.ManagedSystemGUID
	return nil
}

func (h *handshake) rakp3(ctx context.Context) error {
	sik, k1, k2, err := crypto.DeriveSessionKeys(h.suite.auth, h.ourRandom[:], h.bmcRandom[:], h.role, h.target.username, h.target.key)
	if err != nil {
		return err
	}
	code, err := crypto.RAKP3AuthCode(h.suite.auth, h.bmcRandom[:], h.ours, h.role, h.target.username, h.target.password)
	if err != nil {
		return err
	}
	h.sik, h.keys = sik, &keys{suite: h.suite, k1: k1, k2: k2}
	request := &rmcpplus.RAKPMessage3{ManagedSystemSessionID: h.bmc, KeyExchangeAuthenticationCode: code}
	return h.step(ctx, keyMessage, kindRAKP3, request.Pack(), h.rakp4)
}

// rakp4 reads RAKP message 4, by which the BMC proves that it has the same session keys (13.23).
func (h *handshake) rakp4(p []byte) error {
	size := crypto.RAKP4ICVLen(h.suite.auth)
	if len(p) < 8+size {
		return errMessage
	}
	want, err := crypto.RAKP4ICV(h.suite.auth, h.ourRandom[:], h.bmc, h.guid[:], h.sik)
	if err != nil || len(want) == 0 || !hmac.Equal(want, p[8:8+size]) {
		return errBMCKey
	}
	return nil
}
