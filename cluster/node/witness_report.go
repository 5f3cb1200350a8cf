package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoWitness: no process serves there.
var ErrNoWitness = errors.New("no witness runs")

// WitnessCluster is one file of a witness's folder, and what became of it.
type WitnessCluster struct {
	Name    string    `json:"name"` // of the file, without .toml
	File    string    `json:"file"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Error   string    `json:"error,omitempty"` // also of a file that is wrong now, while the cluster is served as before
	Socket  string    `json:"socket,omitempty"`
}

// reportFile is where a witness says what it serves: a file that is wrong has no socket to be asked at.
const reportFile = "witness.json"

// lockFile is locked for as long as a witness runs.
const lockFile = "lock"

// write keeps the report up to date.
func (w *witnesses) write() {
	b, err := json.MarshalIndent(w.all(), "", "  ")
	if err != nil || string(b) == w.report {
		return
	}
	if err := replaceFile(filepath.Join(w.o.RunDir, reportFile), string(b), 0o600); err != nil {
		w.o.Log.Warn("the witness's report is not written", "err", err)
		return
	}
	w.report = string(b)
}

func (w *witnesses) all() []WitnessCluster {
	all := []WitnessCluster{}
	names := slices.Collect(maps.Keys(w.clusters))
	for name := range w.broken {
		if w.clusters[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c := WitnessCluster{Name: name, File: filepath.Join(w.o.Dir, name+".toml"), State: WitnessRefused}
		if wit := w.clusters[name]; wit != nil {
			var err error
			c.State, c.Since, err = wit.now()
			c.Cluster, c.Node, c.Socket = wit.spec.cluster, wit.spec.node, wit.options.Socket
			if err != nil {
				c.Error = err.Error()
			}
		}
		if b := w.broken[name]; b != nil && c.Error == "" {
			c.Error = b.text
		}
		all = append(all, c)
	}
	if w.folder.text != "" {
		all = append(all, WitnessCluster{Name: filepath.Base(w.o.Dir), File: w.o.Dir, State: WitnessRefused, Error: w.folder.text})
	}
	return all
}

// ReadWitness gives what the witness of a run directory serves. ErrNoWitness if none runs.
func ReadWitness(dir string) ([]WitnessCluster, error) {
	dir = folder(dir, "RUNTIME_DIRECTORY", DefaultWitnessRunDir)
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w with run directory %s", ErrNoWitness, dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// It asks for the lock of lockWitness, and takes none: who starts meanwhile must get it (fcntl(2)).
	held := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held); err != nil {
		return nil, fmt.Errorf("lock of the witness: %w", err)
	}
	if held.Type == unix.F_UNLCK {
		return nil, fmt.Errorf("%w with run directory %s", ErrNoWitness, dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has just started
	}
	if err != nil {
		return nil, err
	}
	var all []WitnessCluster
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("report of the witness: %w", err)
	}
	return all, nil
}
