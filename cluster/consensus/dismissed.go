package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dismissedRecord marks a data folder whose voter was dismissed. The next Start sets it aside.
const dismissedRecord = "dismissed"

type dismissedMark struct {
	Identity identity `json:"identity"`
	Reason   string   `json:"reason"`
}

// hear takes from an answer what concerns this node itself: that it was dismissed, or that it
// is older than itself. Before raft runs that is an error of Start; afterwards it ends the log.
func (l *Log) hear(a answer) error {
	if !l.run.follows(a.Known) {
		err := fmt.Errorf("%w (run %d; %s has heard of run %d)", ErrRolledBack, l.run.Number, a.Node, a.Known.Number)
		if l.runs() && l.finish(err) {
			l.log.Error("data folder rolled back", "node", l.cfg.Self, "err", err)
			if l.cfg.Fatal != nil {
				go l.cfg.Fatal(err)
			}
		}
		return err
	}
	if !l.formed() || a.Fork == nil || l.standing().judgeLine(l.id, a) != leftBehind {
		return nil
	}
	err := fmt.Errorf("%w: %s", ErrDismissed, a.Fork)
	b, _ := json.Marshal(dismissedMark{l.id, a.Fork.String()}) // strings
	if saved := l.guard.do("store the dismissal", func() error { return l.stores.records.save(dismissedRecord, b) }); saved != nil {
		return saved
	}
	if l.runs() && l.finish(err) {
		l.log.Error("dismissed", "node", l.cfg.Self, "reason", a.Fork.String())
		if l.cfg.Dismissed != nil {
			go l.cfg.Dismissed(a.Fork.String())
		}
	}
	return err
}

// consult asks the others, before raft may vote, what they know of this node. Each is asked
// once, and who does not answer within Timing.Ask is asked later (see form).
func (l *Log) consult() error {
	answers := l.askAll(l.ctx, l.cfg.Voters, false)
	for _, node := range l.cfg.Voters {
		a, ok := answers[node]
		if !ok {
			continue
		}
		if err := l.hear(a); err != nil {
			return err
		}
		// One that starts itself may be the one that is wrong, and is as unsure as this node.
		if !a.Starting && l.standing().judgeLine(l.id, a) == besides {
			return fmt.Errorf("%w: %s and %s were each made its only voter, or one was removed before; move the data folder of the wrong one away", ErrForked, a.Node, l.cfg.Self)
		}
	}
	return nil
}

// setAside honours the mark of a dismissal, if there is one: the log, its identity and all that
// it remembers become Dir/raft.dismissed, in place of an older one, and the node has none of
// them. It returns the reason. It may be cut short and done again.
func setAside(ctx context.Context, cfg Config) (reason string, err error) {
	if cfg.Stores != nil {
		return cfg.Stores.setAside()
	}
	var set string // not the result: a late end writes to it after the return
	err = beside(ctx, func() (err error) {
		set, err = setAsideDir(cfg.Dir)
		return err
	}, nil)
	if err != nil {
		return "", err
	}
	return set, nil
}

func setAsideDir(dir string) (string, error) {
	var mark dismissedMark
	if found, err := loadJSON(dirRecords(dir), dismissedRecord, &mark); err != nil || !found {
		return "", err
	}
	root, aside := filepath.Join(dir, "raft"), filepath.Join(dir, "raft.dismissed")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("set the dismissed log aside: %w", err)
	}
	lock, err := lockDir(root)
	if err != nil {
		return "", err
	}
	defer lock.Close() // it moves with its folder
	if err := moveAside(dir, root, aside); err != nil {
		return "", fmt.Errorf("set the dismissed log aside: %w", err)
	}
	return mark.Reason, dirRecords(dir).save(dismissedRecord, nil)
}

// moveAside moves the log first: without it, the identity beside it starts nothing.
func moveAside(dir, root, aside string) error {
	_, err := os.Stat(filepath.Join(root, "log.db"))
	switch {
	case err == nil:
		if err := os.RemoveAll(aside); err != nil {
			return err
		}
		if err := os.Rename(root, aside); err != nil {
			return err
		}
		if err := syncDir(dir); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, name := range []string{promiseRecord, aloneRecord, identityRecord} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(syncDir(aside), syncDir(dir))
}

// setAside forgets what memory stores hold, but for what was heard of others.
func (s *Stores) setAside() (string, error) {
	var mark dismissedMark
	if found, err := loadJSON(s.records, dismissedRecord, &mark); err != nil || !found {
		return "", err
	}
	heard, err := s.records.load(heardRecord)
	if err != nil {
		return "", err
	}
	fresh := MemoryStores()
	s.log, s.snapshots, s.records, s.fault = fresh.log, fresh.snapshots, fresh.records, fresh.fault
	return mark.Reason, s.records.save(heardRecord, heard)
}
