// Package guard is for the side that receives writes: it remembers, durably, the
// highest fencing token seen per name, and refuses lower ones.
//
// A name is whatever is written to: usually one per resource group. Everyone who writes under
// a name asks the guard of one directory, which lies where the writes go, so that all
// hosts see the same one. The guarantees, among all processes that use that directory:
//
//   - Once a token has been admitted, no lower one ever is, also after a power cut.
//   - While a write runs (Do, Run), no write under a higher token runs. The higher
//     token is recorded at once, so that no further lower one gets in, and its first
//     write waits until the running ones have ended: there is no moment between the check
//     and the write.
//   - Writes under the same token do not keep each other apart.
//
// A record that is damaged or belongs to another name refuses everything (ErrDamaged);
// it is never taken for an empty one. The locks are open-file-description locks (F_OFD_SETLK of
// fcntl(2)): they end with the process, whichever way it ends, and the file system
// must keep them coherent among all hosts that mount it at once.
//
// The guard is no lock service, and knows nothing of nodes or grants: two writers with the same
// token are the cluster's mistake, and it cannot see it.
package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Errors of the guard, beside *Refused.
var (
	// ErrDamaged says that a record cannot be trusted. It must be repaired by hand:
	// only an operator knows which token was the highest.
	ErrDamaged = errors.New("token record is damaged")
	// ErrToken says that a number cannot be a fencing token.
	ErrToken = errors.New("fencing token must be from 1 to 2^63-2")
	// ErrName says that a name cannot be used.
	ErrName = errors.New("name must have 1 to 80 bytes")
)

// Refused is the error for a token that is lower than one admitted before. It is
// final: the holder of that token has lost its grant.
type Refused struct {
	Name    string
	Token   uint64
	Highest uint64
}

func (r *Refused) Error() string {
	return fmt.Sprintf("token %d is refused for %q, which is at token %d", r.Token, r.Name, r.Highest)
}

// Guard is a handle on one directory of records. It is safe for concurrent use, by any
// number of goroutines and processes.
type Guard struct {
	dir string

	mu      sync.Mutex
	durable map[string]uint64 // per name, the token that this handle has seen on disk
}

// Open makes a handle on an existing directory. It does not create it: where the storage is not
// mounted, a fresh directory would have forgotten every token.
func Open(dir string) (*Guard, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open token guard: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open token guard: %s is not a directory", dir)
	}
	return &Guard{dir: dir, durable: map[string]uint64{}}, nil
}

// Check admits the token or returns *Refused. When it returns nil no write under a lower token
// runs, and none will. It says nothing about what happens after it returned: to write, use Do.
func (g *Guard) Check(ctx context.Context, name string, token uint64) error {
	return g.Do(ctx, name, token, func() error { return nil })
}

// Do runs the write if the token is admitted, and returns its error. While it runs no
// higher token's write does; so it should be short. Waiting for lower tokens' writes to
// end obeys ctx; the write itself is the caller's.
func (g *Guard) Do(ctx context.Context, name string, token uint64, write func() error) error {
	l, err := g.enter(ctx, name, token)
	if err != nil {
		return err
	}
	defer l.close()
	return write()
}

// Highest returns the highest token admitted for the name, 0 if none ever was.
func (g *Guard) Highest(name string) (uint64, error) {
	base, err := fileName(name)
	if err != nil {
		return 0, err
	}
	return readRecord(filepath.Join(g.dir, base+recordSuffix), name)
}

// enter returns with the token's lock held, and with no lower one held by anyone.
func (g *Guard) enter(ctx context.Context, name string, token uint64) (_ *locks, err error) {
	if token == 0 || token > maxToken {
		return nil, fmt.Errorf("%w: %d", ErrToken, token)
	}
	base, err := fileName(name)
	if err != nil {
		return nil, err
	}
	l, err := openLocks(filepath.Join(g.dir, base+lockSuffix))
	if err != nil {
		return nil, fmt.Errorf("guard %q: %w", name, err)
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.lockRecord(ctx); err != nil {
		return nil, fmt.Errorf("guard %q: %w", name, err)
	}
	// The token's lock is taken before the record's is let go: whoever raises the
	// record after us finds us when it waits for the lower ones.
	if err := g.admit(name, base, token); err != nil {
		return nil, err
	}
	if err := l.share(token); err != nil {
		return nil, fmt.Errorf("guard %q: %w", name, err)
	}
	if err := l.unlockRecord(); err != nil {
		return nil, fmt.Errorf("guard %q: %w", name, err)
	}
	if err := l.drain(ctx, token); err != nil {
		return nil, fmt.Errorf("guard %q: writes under lower tokens still run: %w", name, err)
	}
	return l, nil
}

// admit compares with the record, and raises it. The caller holds the record's lock.
func (g *Guard) admit(name, base string, token uint64) error {
	path := filepath.Join(g.dir, base+recordSuffix)
	highest, err := readRecord(path, name)
	if err != nil {
		return err
	}
	g.mu.Lock()
	durable := g.durable[name]
	g.mu.Unlock()
	switch {
	case token < highest:
		return &Refused{Name: name, Token: token, Highest: highest}
	case token == durable && token == highest:
		return nil
	case token == highest:
		// Whoever wrote it may have died before it was on disk.
		err = syncRecord(path)
	default:
		err = writeRecord(path, name, token)
	}
	if err != nil {
		return fmt.Errorf("guard %q: %w", name, err)
	}
	g.mu.Lock()
	g.durable[name] = max(g.durable[name], token)
	g.mu.Unlock()
	return nil
}

const (
	recordSuffix = ".token"
	lockSuffix   = ".lock"
	maxName      = 80
)

// fileName encodes a name so that no name leaves the directory, hides in it, or
// meets another name's files.
func fileName(name string) (string, error) {
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("%w: %q", ErrName, name)
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String(), nil
}
