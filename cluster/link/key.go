package link

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
)

// Key is a cluster key, the only secret between nodes. It prints as a placeholder
// in every way, so that it does not get into logs and error texts.
type Key [32]byte

const hiddenKey = "(cluster key)"

// Format keeps the key out of every verb of package fmt.
func (Key) Format(f fmt.State, _ rune) { io.WriteString(f, hiddenKey) }

// MarshalText keeps the key out of JSON and structured logs.
func (Key) MarshalText() ([]byte, error) { return []byte(hiddenKey), nil }

// GenerateKey makes a new random key.
func GenerateKey() (Key, error) {
	var k Key
	if _, err := rand.Read(k[:]); err != nil {
		return Key{}, fmt.Errorf("generate cluster key: %w", err)
	}
	return k, nil
}

// derive makes a 32-byte secret for one purpose. The cluster's name is in the
// salt, so that two clusters that share a key by mistake do not understand each other.
func (k Key) derive(cluster, purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k[:], []byte("hamgr/1 cluster "+cluster), purpose, 32)
}

// packetCipher makes the AEAD for packets of one session in one direction. A key
// of its own for each (session, sender, receiver) lets the sequence number be the
// nonce, and makes a packet worthless to anyone but its receiver.
func packetCipher(k Key, cluster string, s sessionID, from, to string) (cipher.AEAD, error) {
	root, err := k.derive(cluster, "packets")
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	// Names hold no zero byte (checkName), so that the pair is unambiguous.
	key, err := hkdf.Key(sha256.New, root, s[:], from+"\x00"+to, 32)
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	return cipher.NewGCM(block)
}
