package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/link"
)

// keyBench is a key file and who follows it.
type keyBench struct {
	t       *testing.T
	file    string
	applied []link.KeyRing
	refuse  error
	*keys
}

func newKeyBench(t *testing.T) *keyBench {
	t.Helper()
	b := &keyBench{t: t, file: filepath.Join(t.TempDir(), "cluster.key")}
	if err := NewKeyFile(b.file); err != nil {
		t.Fatal(err)
	}
	b.keys = newKeys(b.file, b.onDisk(), func(r link.KeyRing) error {
		if b.refuse == nil {
			b.applied = append(b.applied, r)
		}
		return b.refuse
	}, slog.New(slog.DiscardHandler))
	return b
}

func (b *keyBench) onDisk() link.KeyRing {
	b.t.Helper()
	ring, err := link.ReadKeyRing(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	return ring
}

func (b *keyBench) add() {
	b.t.Helper()
	if _, err := KeyFile(b.file).Add(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *keyBench) write(text []byte) {
	b.t.Helper()
	if err := os.WriteFile(b.file, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *keyBench) want(what string, ring link.KeyRing, applied int, trouble string) {
	b.t.Helper()
	now, _, err := b.now()
	if !slices.Equal(now, ring) || len(b.applied) != applied {
		b.t.Errorf("%s: %v are in force, applied %d times; want %v, %d", what, now.Fingerprints(), len(b.applied), ring.Fingerprints(), applied)
	}
	if got := fmt.Sprint(err); trouble == "" && err != nil || trouble != "" && !strings.Contains(got, trouble) {
		b.t.Errorf("%s: the trouble is %q, want %q", what, got, trouble)
	}
}

func TestKeyFileIsFollowed(t *testing.T) {
	b := newKeyBench(t)
	old := b.onDisk()
	for range 4 {
		b.look(false)
	}
	b.want("unchanged", old, 0, "")
	b.add()
	b.look(false)
	b.want("changed just now", old, 0, "")
	b.look(false)
	two := b.onDisk()
	b.want("changed, and settled", two, 1, "")
	b.add()
	b.look(true)
	b.want("somebody says that it is whole", b.onDisk(), 2, "")
	if a := b.account(); len(a.Accepts) != 3 || a.Accepts[0] != old[0].Fingerprint() || a.Trouble != "" {
		t.Errorf("told: %+v", a)
	}
}

// A file that cannot be used changes nothing but what is said of it.
func TestBrokenKeyFileKeepsTheKeys(t *testing.T) {
	b := newKeyBench(t)
	b.add()
	b.look(true)
	ring := b.onDisk()
	whole, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		spoil   func() error
		trouble string
	}{
		"missing":   {func() error { return os.Remove(b.file) }, "no such file"},
		"cut":       {func() error { return os.WriteFile(b.file, whole[:len(whole)-7], 0o600) }, "line 2"},
		"empty":     {func() error { return os.WriteFile(b.file, nil, 0o600) }, "no line begins with"},
		"exposed":   {func() error { return os.Chmod(b.file, 0o644) }, "open to others"},
		"something": {func() error { return os.WriteFile(b.file, []byte("hello"), 0o600) }, "does not begin"},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		b.look(false)
		b.look(false)
		b.want(what, ring, 1, c.trouble)
		if a := b.account(); !strings.Contains(a.Trouble, c.trouble) || !slices.Equal(a.Accepts, ring.Fingerprints()) {
			t.Errorf("%s: told %+v", what, a)
		}
		b.write(whole)
		if err := os.Chmod(b.file, 0o600); err != nil {
			t.Fatal(err)
		}
		b.look(false)
		b.look(false)
		b.want(what+", mended", ring, 1, "")
	}
}

// Half of a file that is being copied over the one before may be a valid one.
func TestHalfACopyIsNotTakenOver(t *testing.T) {
	b := newKeyBench(t)
	b.add()
	b.look(true)
	ring := b.onDisk()
	whole, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(whole), "\n") + 1
	for range 3 {
		b.write(whole[:at])
		b.look(false)
		b.want("half of it", ring, 1, "")
		b.write(whole)
		b.look(false)
	}
	b.look(false)
	b.want("all of it", ring, 1, "")
}

// A link that does not take the keys is told of, and asked again.
func TestKeysThatAreNotTaken(t *testing.T) {
	b := newKeyBench(t)
	old := b.onDisk()
	b.add()
	b.refuse = errors.New("no")
	b.look(true)
	b.want("refused", old, 0, "no")
	b.refuse = nil
	b.look(false)
	b.want("asked again", b.onDisk(), 1, "")
	b.add()
	b.refuse = link.ErrStopped
	b.look(true)
	if now, _, err := b.now(); len(now) != 2 || err != nil {
		t.Errorf("after the end of the link: %d keys, %v", len(now), err)
	}
}

func TestKeysAreFollowedByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newKeyBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.run(ctx) }()
		time.Sleep(keyInterval / 2)
		b.add()
		time.Sleep(3 * keyInterval)
		b.want("by itself", b.onDisk(), 1, "")
		b.add()
		b.hint()
		time.Sleep(time.Millisecond)
		b.want("at once", b.onDisk(), 2, "")
		cancel()
		<-done
	})
}

// A disk that hangs keeps nobody longer than he wants to wait.
func TestHungKeyFile(t *testing.T) {
	b := newKeyBench(t)
	b.looking.Lock() // held by a look that does not come back
	defer b.looking.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	short, end := context.WithTimeout(ctx, time.Millisecond)
	defer end()
	if err := b.reload(short, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reload: %v", err)
	}
	cancel()
	<-done
}

func TestRotationIsTold(t *testing.T) {
	long, now := (2 * keyPatience).Milliseconds(), int64(1000)
	for _, c := range []struct {
		what  string
		told  map[string]keyAccount
		grade string
		says  string
	}{
		{"one key", map[string]keyAccount{"alpha": {Accepts: []string{"k1"}, ForMS: long}, "beta": {Accepts: []string{"k1"}, ForMS: long}}, "", ""},
		{"nobody tells", nil, "", ""},
		{"added on one", map[string]keyAccount{"alpha": {Accepts: []string{"k1", "k2"}, ForMS: now}, "beta": {Accepts: []string{"k1"}, ForMS: long}}, "warning", "alpha use k1 and accept k2; beta use k1"},
		{"added on all", map[string]keyAccount{"alpha": {Accepts: []string{"k1", "k2"}, ForMS: long}, "beta": {Accepts: []string{"k1", "k2"}, ForMS: now}}, "", ""},
		{"and forgotten", map[string]keyAccount{"alpha": {Accepts: []string{"k1", "k2"}, ForMS: long}, "beta": {Accepts: []string{"k1", "k2"}, ForMS: long}}, "notice", "alpha, beta use k1 and accept k2"},
		{"used by one", map[string]keyAccount{"alpha": {Accepts: []string{"k2", "k1"}, ForMS: now}, "beta": {Accepts: []string{"k1", "k2"}, ForMS: long}}, "notice", "alpha use k2 and accept k1; beta use k1 and accept k2"},
		{"and forgotten", map[string]keyAccount{"alpha": {Accepts: []string{"k2", "k1"}, ForMS: long}, "beta": {Accepts: []string{"k1", "k2"}, ForMS: long}}, "warning", "under way"},
		{"dropped on one", map[string]keyAccount{"alpha": {Accepts: []string{"k2"}, ForMS: now}, "beta": {Accepts: []string{"k2", "k1"}, ForMS: long}}, "warning", "alpha use k2; beta use k2 and accept k1"},
	} {
		var grade, text string
		say := func(g string) func(string, string) { return func(s, _ string) { grade, text = g, s } }
		rotation(c.told, say("warning"), say("notice"))
		if grade != c.grade || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s %q, want %s %q", c.what, grade, text, c.grade, c.says)
		}
	}
}

// A node that was removed has the key until the key is another one.
func TestRemovedNodeStillHasTheKey(t *testing.T) {
	key := func(n byte) (k link.Key) { k[0] = n; return k }
	n := aloneNode(t)
	n.DataDir, n.Keys = t.TempDir(), link.KeyRing{key(1)}
	n.keys = newKeys("", n.Keys, nil, n.Log)
	without := n.Setup
	without.Config = &config.Config{Cluster: n.Config.Cluster, Nodes: n.Config.Nodes[:1]}
	told := func(m *Node) (text string) {
		none := func(string, string) {}
		m.removed = m.recallRemoved()
		m.keyProblems(true, nil, none, none, func(s, _ string) { text += s })
		return text
	}
	n.keepRemoved(n.Setup)
	if got := told(n); got != "" {
		t.Errorf("nobody was removed: %q", got)
	}
	n.keepRemoved(without)
	if got := told(n); got != "" {
		t.Errorf("it is configured still, or again: %q", got)
	}
	after := aloneNode(t)
	after.Setup = without
	for _, c := range []struct {
		ring link.KeyRing
		want string
	}{
		{link.KeyRing{key(1)}, "beta was removed from the cluster and still has its key " + key(1).Fingerprint()},
		{link.KeyRing{key(2), key(1)}, "still has its key " + key(1).Fingerprint()},
		{link.KeyRing{key(2)}, ""},
	} {
		after.keys = newKeys("", c.ring, nil, n.Log)
		if got := told(after); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("with %v: %q, want %q", c.ring.Fingerprints(), got, c.want)
		}
	}
}
