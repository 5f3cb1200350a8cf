package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// keyInterval is the time between two looks at the file of the cluster key. One look asks for the file's times, and no more.
const keyInterval = 2 * time.Second

// keys has the daemon go by the file of the cluster key as it is. While the file cannot be used, the keys before stay in
// force: a slip of the pen cuts nobody off.
type keys struct {
	file  string // empty: the keys are what they are
	apply func(link.KeyRing) error
	log   *slog.Logger
	hints chan struct{} // has it looked at at once

	looking sync.Mutex // held by a look, which may hang with its disk
	seen    keyMark    // of the last look
	taken   keyMark    // of the file whose content was judged last

	mu    sync.Mutex
	ring  link.KeyRing // in force
	since time.Time    // when it came into force
	err   error        // why the file cannot be used now
}

// keyMark changes when a file does.
type keyMark struct {
	inode        uint64
	size         int64
	mtime, ctime syscall.Timespec
	missing      string
}

func newKeys(file string, ring link.KeyRing, apply func(link.KeyRing) error, log *slog.Logger) *keys {
	return &keys{file: file, apply: apply, log: log, hints: make(chan struct{}, 1), ring: ring, since: time.Now()}
}

// hint has the file looked at now.
func (k *keys) hint() {
	select {
	case k.hints <- struct{}{}:
	default:
	}
}

// run follows the file until ctx ends. It does not wait for a look that hangs.
func (k *keys) run(ctx context.Context) {
	if k.file == "" {
		return
	}
	for at := false; ; {
		if k.reload(ctx, at) != nil {
			return
		}
		timer := time.NewTimer(keyInterval)
		select {
		case <-ctx.Done():
		case <-k.hints:
			at = true
		case <-timer.C:
			at = false
		}
		timer.Stop()
	}
}

// reload looks at the file, and returns when what it says is in force, or is known to be of no use. Its error is that of
// ctx.
func (k *keys) reload(ctx context.Context, atOnce bool) error {
	if k.file == "" {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.look(atOnce)
	}()
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look reads the file if it has changed, and brings it into force. Unless somebody says that it is whole (atOnce), it must
// have been the same at the look before: who copies a file over it writes it piece by piece, and half of one may be
// a valid one that lacks a key.
func (k *keys) look(atOnce bool) {
	k.looking.Lock()
	defer k.looking.Unlock()
	mark := markOf(k.file)
	settled := mark == k.seen
	k.seen = mark
	_, _, wrong := k.now()
	if !atOnce && (!settled || mark == k.taken && wrong == nil) {
		return
	}
	k.taken = mark
	ring, err := link.ReadKeyRing(k.file)
	if inForce, _, _ := k.now(); err == nil && !slices.Equal(ring, inForce) {
		if err = k.apply(ring); errors.Is(err, link.ErrStopped) {
			return
		}
	}
	k.judged(ring, err)
}

// judged notes what came of a look.
func (k *keys) judged(ring link.KeyRing, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && (k.err == nil || k.err.Error() != err.Error()):
		k.log.Error("the file of the cluster key cannot be used; the keys before stay in force", "file", k.file, "keys", k.ring.Fingerprints(), "err", err)
	case err == nil && !slices.Equal(ring, k.ring):
		k.log.Warn("cluster keys taken over", "file", k.file, "keys", ring.Fingerprints(), "before", k.ring.Fingerprints())
		k.ring, k.since = ring, time.Now()
	case err == nil && k.err != nil:
		k.log.Info("the file of the cluster key can be used again", "file", k.file)
	}
	k.err = err
}

// now is the ring in force, since when, and why the file cannot be used.
func (k *keys) now() (ring link.KeyRing, since time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ring, k.since, k.err
}

func markOf(path string) keyMark {
	info, err := os.Stat(path)
	if err != nil {
		return keyMark{missing: err.Error()}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return keyMark{size: info.Size(), mtime: syscall.NsecToTimespec(info.ModTime().UnixNano())}
	}
	return keyMark{inode: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

// keyAccount is what a node tells the others of its cluster keys: their public names.
type keyAccount struct {
	Accepts []string `json:"accepts,omitempty"` // the first is used
	ForMS   int64    `json:"for_ms,omitempty"`  // since they are in force
	Trouble string   `json:"trouble,omitempty"` // why its file cannot be used
}

func (k *keys) account() keyAccount {
	ring, since, err := k.now()
	a := keyAccount{Accepts: ring.Fingerprints(), ForMS: time.Since(since).Milliseconds()}
	if err != nil {
		a.Trouble = clip(err.Error())
	}
	return a
}
