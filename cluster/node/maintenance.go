package node

import "sync"

// maintenance is why the cluster leaves a group alone, if it does.
type maintenance struct {
	mu      sync.Mutex
	why     string
	changed chan struct{} // closed when it begins or ends next
}

func newMaintenance() *maintenance { return &maintenance{changed: make(chan struct{})} }

// set says why the group is in maintenance; empty if it is not.
func (m *maintenance) set(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	turned := (m.why == "") != (why == "")
	m.why = why
	if turned {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// now gives the reason, empty if there is no maintenance, and what is closed when that turns.
func (m *maintenance) now() (why string, turns <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why, m.changed
}
