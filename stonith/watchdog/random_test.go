package watchdog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestNeverProvenWhileItHolds plays a node and its judge against each other: hangs, cuts, crashes, maintenance, and a process that stands
// still between each look and what follows from it. Whenever the judge says that the watchdog has fired, the host must be
// down, or hold nothing.
func TestNeverProvenWhileItHolds(t *testing.T) {
	runs := 60
	if testing.Short() {
		runs = 20
	}
	proven, resets := 0, 0
	for seed := range runs {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, uint64(seed))
			p, r := s.play(15 * time.Minute)
			proven += p
			resets += r
		})
	}
	if proven < runs/10 || resets < runs/10 {
		t.Fatalf("%d of %d nodes were proven over, %d reset: the schedules try nothing", proven, runs, resets)
	}
}

// scene is one node and its judge.
type scene struct {
	*host
	rand *rand.Rand

	mu      sync.Mutex
	holds   map[string]bool // what really runs
	claim   *Claim          // as committed last
	contact time.Time
	down    bool
}

func newScene(t *testing.T, seed uint64) *scene {
	s := &scene{host: newHost(t), rand: rand.New(rand.NewPCG(seed, 8)), holds: map[string]bool{}, contact: time.Now()}
	s.passedTest()
	s.dog.noWayOut = s.rand.IntN(4) == 0
	s.dog.reset = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.down = true
	}
	pauses := rand.New(rand.NewPCG(seed, 9))
	var mu sync.Mutex
	s.dog.pause = func(string) {
		mu.Lock()
		long := time.Duration(0)
		if pauses.IntN(40) == 0 {
			long = time.Duration(pauses.Int64N(int64(2 * s.o.Timing.Late(0))))
		}
		mu.Unlock()
		time.Sleep(long)
	}
	return s
}

// play gives how often the node was proven over, and whether it was reset.
func (s *scene) play(length time.Duration) (proven, resets int) {
	s.start()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for begun := time.Now(); time.Since(begun) < length && !s.isDown(); {
			s.act()
		}
	}()
	for playing := true; playing; {
		select {
		case <-done:
			playing = false
		case <-time.After(700 * time.Millisecond):
		}
		if s.judge() {
			proven = 1
		}
	}
	// Who was left alone to the end is judged, too.
	for range 600 {
		time.Sleep(time.Second)
		if s.judge() {
			proven = 1
		}
	}
	if s.isDown() {
		resets = 1
	}
	s.stop()
	s.dog.set(func() {
		if s.dog.timer != nil {
			s.dog.timer.Stop()
		}
	})
	return proven, resets
}

func (s *scene) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *scene) judge() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := Decide(Case{Boot: "b1", Claim: s.claim, Silent: time.Since(s.contact), Expiry: s.o.Timing.Expiry})
	if v.Proven && !s.down && len(s.holds) > 0 {
		s.t.Fatalf("proven (%s), and the host runs %v", v.Why, s.holds)
	}
	return v.Proven
}

// greet is one question: it may come late, and so may its answer, which may be lost.
func (s *scene) greet() {
	claim, mark := s.guard.Ask()
	time.Sleep(time.Duration(s.rand.Int64N(int64(detection))))
	s.mu.Lock()
	over := s.down
	if !over {
		s.claim, s.contact = &claim, time.Now()
	}
	s.mu.Unlock()
	time.Sleep(time.Duration(s.rand.Int64N(int64(detection))))
	if !over && s.rand.IntN(10) > 0 {
		s.guard.Heard(mark)
	}
}

func (s *scene) act() {
	switch n := s.rand.IntN(100); {
	case n < 60:
		s.greet()
	case n < 72:
		s.begin(fmt.Sprintf("g%d", s.rand.IntN(3)))
	case n < 82:
		s.end(fmt.Sprintf("g%d", s.rand.IntN(3)))
	case n < 86:
		s.become(func(context.Context) error { return errDown })
		time.Sleep(time.Duration(s.rand.Int64N(int64(40 * time.Second))))
		s.become(func(context.Context) error { return nil })
	case n < 91:
		time.Sleep(time.Duration(s.rand.Int64N(int64(3 * s.o.Timing.Expiry)))) // cut off
	case n < 96:
		s.stop()
		time.Sleep(time.Duration(s.rand.Int64N(int64(2 * RestartTime))))
		s.mu.Lock()
		var held []string
		for name := range s.holds {
			held = append(held, name)
		}
		s.mu.Unlock()
		s.start(held...)
	case n < 98:
		s.guard.Excuse("in maintenance")
	default:
		s.guard.Excuse("")
	}
}

func (s *scene) begin(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.guard.Hold(ctx, name) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		s.holds[name] = true
	}
}

func (s *scene) end(name string) {
	s.mu.Lock()
	held := s.holds[name]
	delete(s.holds, name)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if held {
		_ = s.guard.Release(ctx, name)
	}
}
