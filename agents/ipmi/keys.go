package ipmi

import (
	"crypto/aes"
	"crypto/hmac"
	"fmt"
	"slices"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"
)

// keys sign and encrypt the datagrams of one session (IPMI 2.0, 13.28.4 and 13.29).
type keys struct {
	suite suite
	k1    []byte // signs
	k2    []byte // encrypts
}

// seal makes the datagram that carries a message.
func (k *keys) seal(session, sequence uint32, message []byte) ([]byte, error) {
	payload, err := crypto.EncryptAESPayload(message, k.k2, crypto.RandomBytes(aes.BlockSize))
	if err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	b := protocol.BuildRMCPPlusPacket(kindIPMI, flagEncrypted|flagAuthenticated, session, sequence, payload)
	pad := types.IntegrityPadLen(headerLength-signedFrom, len(payload))
	for range pad {
		b = append(b, 0xff)
	}
	b = append(b, byte(pad), nextHeader)
	code, err := k.sign(b[signedFrom:])
	if err != nil {
		return nil, err
	}
	return append(b, code...), nil
}

func (k *keys) sign(b []byte) ([]byte, error) {
	code, err := crypto.SessionIntegrityAuthCode(k.suite.sign, b, k.k1, "")
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return code, nil
}

// verify checks the signature of a frame, and with it each byte that matters.
func (k *keys) verify(f frame) error {
	size, ok := crypto.IntegrityAuthCodeLen(k.suite.sign)
	if !ok || size == 0 {
		return errAuthCode // never: a suite without signatures is not offered
	}
	rest := len(f.trailer) - size // pad, pad length, next header
	if rest < 2 || f.trailer[rest-1] != nextHeader || int(f.trailer[rest-2]) != rest-2 {
		return errTrailer
	}
	want, err := k.sign(slices.Concat(f.signed, f.trailer[:rest]))
	if err != nil || !hmac.Equal(want, f.trailer[rest:]) {
		return errAuthCode
	}
	return nil
}

// decrypt gives the message of a verified frame: an initialization vector, then whole blocks
// whose last bytes are the pad 1, 2, 3, ... and its length (IPMI 2.0, table 13-20).
func (k *keys) decrypt(f frame) ([]byte, error) {
	n := len(f.payload)
	if n < 2*aes.BlockSize || n%aes.BlockSize != 0 {
		return nil, errCipher
	}
	plain, err := crypto.DecryptAES(f.payload[aes.BlockSize:], k.k2[:aes.BlockSize], f.payload[:aes.BlockSize])
	if err != nil {
		return nil, errCipher
	}
	end := len(plain) - 1 - int(plain[len(plain)-1])
	if end < 0 {
		return nil, errCipher
	}
	for i, b := range plain[end : len(plain)-1] {
		if int(b) != i+1 {
			return nil, errCipher
		}
	}
	return plain[:end], nil
}
