package link

import (
	"bytes"
	"crypto/cipher"
	"errors"
	"strings"
	"testing"
	"time"
)

// wire is a network of datagrams that the test carries by hand: what a node sends is
// kept, and the test decides who gets it, when and how often.
type wire struct {
	t     testing.TB
	nodes []Node
	links map[string]*Link
}

func newWire(t testing.TB, names ...string) *wire {
	w := &wire{t: t, links: make(map[string]*Link)}
	for i, n := range names {
		w.nodes = append(w.nodes, Node{Name: n, Addresses: []string{
			"10.0.0." + string(rune('1'+i)) + ":1", "10.1.0." + string(rune('1'+i)) + ":1"}})
	}
	for _, n := range names {
		w.boot(n)
	}
	return w
}

// boot gives a node a new run: a new session that knows nobody.
func (w *wire) boot(name string, changes ...func(*Config)) *Link {
	w.t.Helper()
	cfg := Config{Cluster: "test", Self: name, Nodes: w.nodes, Keys: KeyRing{testKey(1)}}
	for _, change := range changes {
		change(&cfg)
	}
	if err := cfg.validate(); err != nil {
		w.t.Fatal(err)
	}
	l, err := build(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Stop)
	w.links[name] = l
	return l
}

// run is what the node's packets say of it at present.
func (l *Link) run() run {
	keys := l.keys.Load()
	return run{keys.active.id, keys.session}
}

// sealed makes a packet to a node, with an empty report.
func (l *Link) sealed(h header, to, payload string) []byte {
	return seal(l.keys.Load().seals[to], h, append([]byte{0}, payload...))
}

// packet is what from would send to to now, by one link.
func (w *wire) packet(from, to string, by int, payload string) []byte {
	w.t.Helper()
	p := w.links[from].peers[to]
	h := header{kind: data, link: byte(by), sender: from, run: w.links[from].run(), echo: p.incoming.run.session, seq: p.seq.Add(1)}
	return w.links[from].sealed(h, to, payload)
}

// meet makes two nodes believe each other's present session.
func (w *wire) meet(a, b string) {
	w.t.Helper()
	one, other := w.links[a], w.links[b]
	greeting := func(from, to *Link) []byte {
		p := from.peers[to.Self()]
		h := header{kind: hello, sender: from.Self(), run: from.run(), echo: to.run().session, seq: p.seq.Add(1)}
		return from.sealed(h, to.Self(), "")
	}
	if why := one.take(greeting(other, one), time.Now()); why != dropNone {
		w.t.Fatalf("greeting %s: %s", a, dropWords[why])
	}
	if why := other.take(greeting(one, other), time.Now()); why != dropNone {
		w.t.Fatalf("greeting %s: %s", b, dropWords[why])
	}
}

// want gives a packet to a node and checks what becomes of it.
func (w *wire) want(to string, b []byte, want drop, what string) {
	w.t.Helper()
	l := w.links[to]
	before := len(l.packets)
	if got := l.take(bytes.Clone(b), time.Now()); got != want {
		w.t.Errorf("%s: dropped as %q, want %q", what, dropWords[got], dropWords[want])
	}
	if delivered := len(l.packets) > before; delivered != (want == dropNone) {
		w.t.Errorf("%s: delivered: %v", what, delivered)
	}
}

func TestPacketDrops(t *testing.T) {
	w := newWire(t, "alpha", "beta", "gamma")
	w.meet("alpha", "beta")
	good := w.packet("alpha", "beta", 0, "payload")

	w.want("beta", nil, dropShort, "nothing")
	w.want("beta", good[:20], dropShort, "cut off in the header")
	w.want("beta", good[:fixedHeader+len("alpha")+tagSize-1], dropShort, "no room for the tag")
	w.want("beta", append(bytes.Clone(good), make([]byte, maxDatagram)...), dropTooBig, "too big")
	w.want("beta", append([]byte{'H'}, good[1:]...), dropVersion, "not ours")
	w.want("beta", append([]byte{magic, version + 1}, good[2:]...), dropVersion, "a later version")
	w.want("gamma", good, dropSealed, "meant for another node")
	w.want("alpha", good, dropOwnName, "reflected")

	for i := range good { // each bit that is not the payload's length
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if got := w.links["beta"].take(bad, time.Now()); got == dropNone || got == dropReplayed {
			t.Errorf("byte %d changed: %q", i, dropWords[got])
		}
	}
	w.want("beta", good, dropNone, "after all of these, the good one")

	w.boot("alpha", func(c *Config) { c.Keys = KeyRing{testKey(2)} })
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropKey, "another key")
	claimed := w.packet("alpha", "beta", 0, "x")
	known := testKey(1).id()
	copy(claimed[5+len("alpha"):], known[:])
	w.want("beta", claimed, dropSealed, "another key under the name of the right one")
	w.boot("alpha", func(c *Config) { c.Cluster = "other" })
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropSealed, "another cluster with the same key")
	w.boot("delta", func(c *Config) { c.Nodes = append([]Node{{"delta", []string{"10.0.0.9:1"}}}, c.Nodes...) })
	w.want("beta", w.packet("delta", "beta", 0, "x"), dropUnknownNode, "a node that is not configured here")
}

// TestPacketHeaderIsAuthentic: each field of the header is covered by the tag, also where
// a change would otherwise go unnoticed.
func TestPacketHeaderIsAuthentic(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	for name, at := range map[string]int{
		"kind":            2,
		"link":            3,
		"session":         5 + 8 + len("alpha"),
		"echo":            5 + 8 + len("alpha") + sessionSize,
		"sequence number": 5 + 8 + len("alpha") + 2*sessionSize + 7,
	} {
		b := w.packet("alpha", "beta", 0, "x")
		b[at] ^= 3
		w.want("beta", b, dropSealed, name+" changed")
	}
}

func TestPacketOrder(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	var sent [][]byte
	for range 900 {
		sent = append(sent, w.packet("alpha", "beta", 0, "x"))
	}
	w.want("beta", sent[899], dropNone, "the last one first")
	for _, i := range []int{500, 3, 898, 4} {
		w.want("beta", sent[i], dropNone, "overtaken")
		w.want("beta", sent[i], dropReplayed, "a second time")
	}
	w.want("beta", sent[899], dropReplayed, "the last one again")
	for range 2000 {
		w.packet("alpha", "beta", 0, "lost")
	}
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "after a long loss")
	w.want("beta", sent[5], dropReplayed, "too old to know")
}

// TestCopiesProveTheirLink: a packet comes by every link; one copy is delivered, and each
// proves its own link once.
func TestCopiesProveTheirLink(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	alpha, beta := w.links["alpha"], w.links["beta"]
	p := alpha.peers["beta"]
	h := header{kind: data, sender: "alpha", run: alpha.run(), echo: beta.run().session, seq: p.seq.Add(1)}
	first := alpha.sealed(h, "beta", "x")
	h.link = 1
	second := alpha.sealed(h, "beta", "x")

	w.want("beta", first, dropNone, "first link")
	if got := beta.peers["alpha"].paths[1].packet; !got.IsZero() {
		t.Error("the second link is proven by the first")
	}
	contact := beta.peers["alpha"].contact
	time.Sleep(time.Millisecond) // a tick of the clock
	w.want("beta", second, dropCopy, "second link")
	proven := beta.peers["alpha"].paths[1].packet
	if proven.IsZero() {
		t.Error("the copy did not prove the second link")
	}
	w.want("beta", second, dropReplayed, "second link again")
	if beta.peers["alpha"].paths[1].packet != proven || beta.peers["alpha"].contact != contact {
		t.Error("a replayed packet proved something")
	}
}

// TestReplayOfAnEarlierRun: what was recorded of a run of the sender that has ended, or
// before the receiver started, is refused, proves no contact, and does not push out the
// present session.
func TestReplayOfAnEarlierRun(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	early := [][]byte{w.packet("alpha", "beta", 0, "1"), w.packet("alpha", "beta", 0, "2"), w.packet("alpha", "beta", 0, "3")}
	w.want("beta", early[0], dropNone, "in its time")

	w.boot("alpha") // restarts
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropUnproven, "a new run that does not know beta's session")
	w.want("beta", early[1], dropNone, "the old run, until the new one is proven")
	w.meet("alpha", "beta")
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the new run")
	w.want("beta", early[2], dropStaleSession, "the old run afterwards")
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the new run still")

	recorded := w.packet("alpha", "beta", 0, "recorded")
	beta := w.boot("beta") // restarts, and has seen nothing
	w.want("beta", recorded, dropUnproven, "recorded before the start")
	if _, ok := beta.Contact("alpha"); ok {
		t.Error("a recorded packet counts as contact")
	}
	w.boot("alpha")
	w.meet("alpha", "beta")
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the present run")
	w.want("beta", recorded, dropUnproven, "recorded, against the present run")
	w.want("beta", early[2], dropUnproven, "recorded long ago")
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the present run was not pushed out")
}

// TestReplayAcrossNewKeys: new keys make the node forget which runs have ended; what was
// recorded of them is still worthless.
func TestReplayAcrossNewKeys(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	recorded := w.packet("alpha", "beta", 0, "recorded")
	w.boot("alpha")
	w.meet("alpha", "beta")
	if err := w.links["beta"].SetKeys(KeyRing{testKey(1), testKey(2)}); err != nil {
		t.Fatal(err)
	}
	w.want("beta", recorded, dropUnproven, "of a run that ended before the new keys")
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the present run")
}

// TestSessionEndsWhileAPacketIsOpened: two sockets are read at once, so a session can be
// superseded between the opening of one of its packets and the verdict on it.
func TestSessionEndsWhileAPacketIsOpened(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	old := w.packet("alpha", "beta", 0, "x")
	beta := w.links["beta"]
	p := beta.peers["alpha"]
	h, prefix, sealed, _ := split(old)
	_, open, why := beta.open(p, h, prefix, sealed)
	if why != dropNone {
		t.Fatal(dropWords[why])
	}
	w.boot("alpha")
	w.meet("alpha", "beta")
	if why, _ := beta.admit(p, arrival{header: h, open: open, at: time.Now()}); why != dropStaleSession {
		t.Errorf("a packet of the ended run: %q", dropWords[why])
	}
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "the present run was not pushed out")
}

// TestGreetingsAreBounded: replayed packets make a node talk only so much.
func TestGreetingsAreBounded(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	strange := w.packet("alpha", "beta", 0, "x")
	beta := w.links["beta"]
	for range 1000 {
		beta.take(bytes.Clone(strange), time.Now())
	}
	// No address is bound, so nothing is sent; the sequence number counts the tries.
	if n := beta.peers["alpha"].seq.Load(); n == 0 || n > 10*helloBurst {
		t.Errorf("1000 packets were answered %d times", n)
	}
}

func TestPacketFromAnotherLayout(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	w.want("beta", w.packet("alpha", "beta", 7, "x"), dropVersion, "a link that beta does not have")
	p := w.links["alpha"].peers["beta"]
	h := header{kind: 9, sender: "alpha", run: w.links["alpha"].run(), echo: w.links["beta"].run().session, seq: p.seq.Add(1)}
	w.want("beta", w.links["alpha"].sealed(h, "beta", ""), dropVersion, "an unknown kind")
}

func TestPacketQueueFull(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	for range packetQueue {
		w.want("beta", w.packet("alpha", "beta", 0, "x"), dropNone, "fits")
	}
	w.want("beta", w.packet("alpha", "beta", 0, "x"), dropQueue, "one too many")
}

func TestSendRefuses(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	alpha := w.links["alpha"]
	for what, c := range map[string]struct {
		node string
		size int
		want error
	}{
		"a stranger":       {"nobody", 1, ErrUnknownNode},
		"itself":           {"alpha", 1, ErrUnknownNode},
		"too much":         {"beta", MaxPayload + 1, ErrTooBig},
		"without a socket": {"beta", MaxPayload, ErrNoLink},
	} {
		if err := alpha.Send(c.node, make([]byte, c.size)); !errors.Is(err, c.want) {
			t.Errorf("sent %s: %v", what, err)
		}
	}
	alpha.Stop()
	if err := alpha.Send("beta", nil); !errors.Is(err, ErrStopped) {
		t.Errorf("sent after Stop: %v", err)
	}
}

// TestLargestPacket: the largest payload under the longest name fits the smallest MTU of
// IPv6, and is taken by the receiver.
func TestLargestPacket(t *testing.T) {
	long := strings.Repeat("n", maxNameLength)
	w := newWire(t, long, "beta")
	w.meet(long, "beta")
	from := w.links[long]
	h := header{kind: data, sender: long, run: from.run(), echo: w.links["beta"].run().session, seq: 100}
	told := append([]byte{maxLinks}, make([]byte, maxReport-1)...)
	b := seal(from.keys.Load().seals["beta"], h, append(told, make([]byte, MaxPayload)...))
	if len(b) != 1232 {
		t.Errorf("the largest packet has %d bytes, want 1232", len(b))
	}
	w.want("beta", b, dropNone, "the largest packet")
}

// TestNoncesDiffer: every packet of a run to one node has a nonce of its own, and
// each receiver and run a key of its own.
func TestNoncesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for seq := range uint64(300) {
		for by := range byte(maxLinks) {
			n := string(header{link: by, seq: seq << 30}.nonce())
			if seen[n] {
				t.Fatalf("nonce of link %d, packet %d was used before", by, seq)
			}
			seen[n] = true
		}
	}
	keys := make(map[string]string)
	for _, c := range []struct {
		session  sessionID
		from, to string
	}{{from: "a", to: "b"}, {from: "b", to: "a"}, {from: "a", to: "c"}, {session: sessionID{1}, from: "a", to: "b"}, {from: "ab", to: "c"}, {from: "a", to: "bc"}} {
		aead, err := packetCipher(testKey(1), "test", c.session, c.from, c.to)
		if err != nil {
			t.Fatal(err)
		}
		print := fingerprint(aead)
		if other, ok := keys[print]; ok {
			t.Errorf("%+v has the key of %s", c, other)
		}
		keys[print] = c.from + " to " + c.to
	}
}

func fingerprint(aead cipher.AEAD) string {
	return string(aead.Seal(nil, make([]byte, aead.NonceSize()), nil, nil))
}

// FuzzTake feeds datagrams to a node that knows its peer: nothing but the packets that
// the peer sealed, unchanged, is ever delivered, and nothing makes it panic.
func FuzzTake(f *testing.F) {
	w := newWire(f, "alpha", "beta")
	// The run must be the same in all fuzz processes, so that the seeds fit.
	alpha, beta := w.links["alpha"], w.links["beta"]
	for l, s := range map[*Link]sessionID{alpha: {1}, beta: {2}} {
		keys, err := l.newKeyset(KeyRing{testKey(1)}, s)
		if err != nil {
			f.Fatal(err)
		}
		l.keys.Store(keys)
	}
	h := header{kind: data, sender: "alpha", run: alpha.run(), echo: beta.run().session, seq: 1}
	good := alpha.sealed(h, "beta", "payload")
	h.kind, h.seq = hello, 2
	greeting := alpha.sealed(h, "beta", "")
	for _, seed := range [][]byte{nil, good, greeting, good[:len(good)-1], good[:50], append(bytes.Clone(good), 0), make([]byte, 2000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		beta.peers["alpha"].incoming = session{}
		why := beta.take(bytes.Clone(b), time.Now())
		authentic := bytes.Equal(b, good) || bytes.Equal(b, greeting)
		if (why == dropNone) != authentic {
			t.Fatalf("taken: %q, authentic: %v", dropWords[why], authentic)
		}
		for len(beta.packets) > 0 {
			if p := <-beta.packets; p.From != "alpha" || string(p.Data) != "payload" || !bytes.Equal(b, good) {
				t.Fatalf("delivered %q of %s", p.Data, p.From)
			}
		}
	})
}
