package link

import (
	"crypto/cipher"
	"crypto/tls"
	"fmt"
)

// keyset is everything that follows from the keys. It is replaced as a whole: what was
// begun with one is finished with it.
type keyset struct {
	session sessionID // names this run in packets
	active  *heldKey
	held    map[keyID]*heldKey
	seals   map[string]cipher.AEAD // by node: seals this run's packets to it
}

// heldKey is one accepted key.
type heldKey struct {
	key            Key
	id             keyID
	server, client *tls.Config
}

func (l *Link) newKeyset(ring KeyRing, s sessionID) (*keyset, error) {
	keys := &keyset{session: s, held: make(map[keyID]*heldKey), seals: make(map[string]cipher.AEAD)}
	for _, k := range ring {
		server, client, err := identity(k, l.cfg.Cluster, l.cfg.Self)
		if err != nil {
			return nil, err
		}
		h := &heldKey{k, k.id(), server, client}
		keys.held[h.id] = h
		if keys.active == nil {
			keys.active = h
		}
	}
	for name := range l.peers {
		seal, err := packetCipher(keys.active.key, l.cfg.Cluster, s, l.cfg.Self, name)
		if err != nil {
			return nil, err
		}
		keys.seals[name] = seal
	}
	return keys, nil
}

// SetKeys replaces the accepted keys while the link runs. What is made with a key that is
// in the ring stays; conns made with one that is not are closed at once, and nothing that is
// sealed with it is believed any more.
//
// For packets it is as if the process had restarted: this run gets a new session, so
// that whoever held a dropped key and knew the old session can do nothing with it. The
// peers believe the new session by its first packet, which carries their own.
func (l *Link) SetKeys(ring KeyRing) error {
	if err := ring.validate(); err != nil {
		return fmt.Errorf("set cluster keys: %w", err)
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	keys, err := l.newKeyset(ring, newSession())
	if err != nil {
		return fmt.Errorf("set cluster keys: %w", err)
	}
	if l.ctx.Err() != nil {
		return fmt.Errorf("set cluster keys: %w", ErrStopped)
	}
	l.keys.Store(keys) // before the conns and peers are looked at, see keep and admit
	var orphans []*conn
	l.mu.Lock()
	for c := range l.conns {
		if keys.held[c.key] == nil {
			orphans = append(orphans, c)
		}
	}
	l.mu.Unlock()
	for _, c := range orphans {
		c.abort()
	}
	for _, p := range l.peers {
		known := p.session()
		p.forget(keys)
		l.greet(p, known)
	}
	l.log.Info("cluster keys replaced", "active", keys.active.id.String(), "accepted", len(ring), "conns_closed", len(orphans))
	return nil
}

// Keys are the fingerprints of the accepted keys; the active one is the first.
func (l *Link) Keys() []string {
	keys := l.keys.Load()
	names := []string{keys.active.id.String()}
	for id := range keys.held {
		if id != keys.active.id {
			names = append(names, id.String())
		}
	}
	return names
}
