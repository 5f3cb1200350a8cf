package bus

import (
	"sync"

	"github.com/godbus/dbus/v5"
)

// signals takes what systemd tells unasked: the ends of jobs, and that something of a unit has changed. It runs in the
// goroutine that reads the connection, and never waits.
type signals struct {
	mu       sync.Mutex
	jobs     map[uint32]chan string
	early    map[uint32]string // results of jobs whose number is not known yet; nil if none is expected
	watchers map[dbus.ObjectPath]map[chan struct{}]struct{}
}

var _ dbus.SignalHandler = (*signals)(nil)

func newSignals() *signals {
	return &signals{jobs: map[uint32]chan string{}, watchers: map[dbus.ObjectPath]map[chan struct{}]struct{}{}}
}

// DeliverSignal implements dbus.SignalHandler.
func (s *signals) DeliverSignal(iface, name string, signal *dbus.Signal) {
	switch {
	case iface == managerInterface && name == "JobRemoved":
		var (
			id           uint32
			path         dbus.ObjectPath
			unit, result string
		)
		if dbus.Store(signal.Body, &id, &path, &unit, &result) == nil {
			s.jobEnded(id, result)
		}
	case iface == "org.freedesktop.DBus.Properties" && name == "PropertiesChanged":
		s.changed(signal.Path)
	}
}

func (s *signals) jobEnded(id uint32, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early != nil {
		s.early[id] = result
	}
	if c, ok := s.jobs[id]; ok {
		c <- result
		delete(s.jobs, id)
	}
}

// expectJob is called before a job is asked for. A job may end before the answer that
// names it has been read, so results are kept from here until finish is called with the number, or 0. A
// connection asks for one job at a time.
func (s *signals) expectJob() (finish func(id uint32) <-chan string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = map[uint32]string{}
	return func(id uint32) <-chan string {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := make(chan string, 1)
		if result, ok := s.early[id]; ok {
			c <- result
		} else if id != 0 {
			s.jobs[id] = c
		}
		s.early = nil
		return c
	}
}

func (s *signals) changed(path dbus.ObjectPath) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.watchers[path] {
		select {
		case c <- struct{}{}:
		default: // it is awake
		}
	}
}

func (s *signals) watch(path dbus.ObjectPath) (wake <-chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	if s.watchers[path] == nil {
		s.watchers[path] = map[chan struct{}]struct{}{}
	}
	s.watchers[path][c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers[path], c)
		if len(s.watchers[path]) == 0 {
			delete(s.watchers, path)
		}
	}
}
