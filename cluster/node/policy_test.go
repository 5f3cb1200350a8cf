package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// script is a resource that does as a test says, and keeps which calls were made.
type script struct {
	Name string

	mu                 sync.Mutex
	calls              []string
	active             bool
	hung               chan struct{} // probes ignore their context until it is closed; nil: they do not
	inFlight, most     atomic.Int32
	checked, startFail error
	checkHangs         chan struct{} // a check ignores its context until it is closed
	checkFirst         *script       // the check fails with ErrNode until that one is active
	died               chan struct{}
	deaths             int
}

func (s *script) Validate() error                               { return nil }
func (s *script) Exclusive() (key, what string)                 { return "", "" }
func (s *script) New(resources.Env) (resources.Resource, error) { return s, nil }

func (s *script) enter(call string) (leave func()) {
	s.most.Store(max(s.most.Load(), s.inFlight.Add(1)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	return func() { s.inFlight.Add(-1) }
}

func (s *script) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.calls), func(c string) bool { return c != call }))
}

func (s *script) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// asked is how often its death was waited for.
func (s *script) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deaths
}

func (s *script) set(active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = active
}

func (s *script) is() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

func (s *script) Probe(context.Context) (resources.State, string, error) {
	defer s.enter("probe")()
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung != nil {
		<-hung
	}
	if s.is() {
		return resources.Active, "", nil
	}
	return resources.Inactive, "", nil
}

func (s *script) Start(context.Context) error {
	defer s.enter("start")()
	if s.startFail != nil {
		return s.startFail
	}
	s.set(true)
	return nil
}

func (s *script) Stop(context.Context) error {
	defer s.enter("stop")()
	s.set(false)
	return nil
}

func (s *script) Check(context.Context) error {
	defer s.enter("check")()
	if s.checkHangs != nil {
		<-s.checkHangs
	}
	if s.checkFirst != nil && !s.checkFirst.is() {
		return fmt.Errorf("%w: no disk", resources.ErrNode)
	}
	return s.checked
}

// Died tells its death again whenever it is asked, as the contract says.
func (s *script) Died(ctx context.Context) error {
	s.mu.Lock()
	s.deaths++
	died := s.died
	s.mu.Unlock()
	select {
	case <-died:
		return errors.New("exit status 1")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stage is a runner of scripts, and what it reports.
type stage struct {
	n       *Node
	r       *runner
	mu      sync.Mutex
	reports []state.Command
	cancel  context.CancelFunc
	copies  map[string]string // what the other nodes say when they are asked
	asked   int
}

// newStage makes a node whose file has one group of scripts; the runner is not begun.
func newStage(t *testing.T, onFail string, scripts ...*script) *stage {
	n := aloneNode(t)
	g := config.Group{Name: "db", Restarts: 1, RestartWindow: time.Minute}
	kinds := []resources.Kind{}
	for i, s := range scripts {
		s.Name = fmt.Sprintf("part%d", i)
		s.died = make(chan struct{})
		kinds = append(kinds, resources.Kind{Name: s.Name, Options: func() resources.Options { return s }})
		g.Resources = append(g.Resources, config.Resource{
			Name: s.Name, Kind: s.Name, OnFail: onFail, Options: s, StartTimeout: 20 * time.Second, StopTimeout: 20 * time.Second,
			MonitorInterval: 10 * time.Second, MonitorTimeout: 5 * time.Second,
		})
	}
	n.Config.Groups = []config.Group{g}
	n.Kinds.Resources = resources.NewRegistry(kinds...)
	began := time.Now()
	n.Uptime = func() time.Duration { return time.Since(began) }
	n.trust = newTrust(time.Second, n.uptime, &Pace{}, n.Log)
	era, _ := n.trust.question()
	n.trust.answered(era)
	n.peers, n.groups, n.ready = newPeers(n), newGroups(n), newReadiness(n)
	n.startAlone(t)
	return &stage{n: n}
}

// begin starts the runner of a grant, as a daemon that sees it applied does.
func (s *stage) begin(t *testing.T, phase state.GrantPhase) {
	ctx, cancel := context.WithCancel(t.Context())
	s.r = newRunner(s.n, "db", state.Grant{Node: "alpha", Boot: "a1", Token: 7, Phase: phase})
	s.r.out = newOutbox(func(_ context.Context, c state.Command) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports = append(s.reports, c)
		return nil
	}, slog.New(slog.DiscardHandler))
	s.r.copies = func(context.Context) map[string]string { s.asked++; return s.copies }
	go s.r.run(ctx)
	s.cancel = func() { cancel(); <-s.r.ended }
	t.Cleanup(s.cancel)
}

func (s *stage) failed() (all []*state.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.reports {
		if c.Failed != nil {
			all = append(all, c.Failed)
		}
	}
	return all
}

func (s *stage) has(what func(state.Command) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.reports, what)
}

// TestHungProbe: a monitor that never returns is a failure, once; no second call joins it, and the group counts as
// stopped only after it has returned.
func TestHungProbe(t *testing.T) {
	for _, onFail := range []string{config.OnFailMove, config.OnFailIgnore} {
		synctest.Test(t, func(t *testing.T) {
			hung := &script{}
			s := newStage(t, onFail, hung)
			s.begin(t, state.Granted)
			time.Sleep(time.Second)
			hung.mu.Lock()
			hung.hung = make(chan struct{})
			hung.mu.Unlock()
			defer close(hung.hung)
			time.Sleep(2 * time.Minute)
			if hung.most.Load() != 1 {
				t.Errorf("%s: %d calls at once", onFail, hung.most.Load())
			}
			stopFailed := s.has(func(c state.Command) bool { return c.StopFailed != nil })
			if stopped := s.has(func(c state.Command) bool { return c.Stopped != nil }); stopped {
				t.Errorf("%s: stopped, while a call goes on", onFail)
			}
			if ignored := onFail == config.OnFailIgnore; len(s.failed()) > 0 == ignored || stopFailed == ignored {
				t.Errorf("%s: %d failures, stop failed: %t", onFail, len(s.failed()), stopFailed)
			}
			began := time.Now()
			s.cancel()
			if time.Since(began) > 2*callGrace {
				t.Errorf("ended %s after its context", time.Since(began))
			}
		})
	}
}

// TestIgnoredDeath: its death is asked for once, not in a loop; its monitor goes on, and it is asked again after a start.
func TestIgnoredDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, dead := &script{}, &script{}
		s := newStage(t, config.OnFailIgnore, first, dead)
		s.n.Config.Groups[0].Resources[0].OnFail = config.OnFailRestart
		s.begin(t, state.Granted)
		time.Sleep(time.Second)
		dead.set(false)
		close(dead.died)
		time.Sleep(time.Minute)
		if dead.asked() != 1 || dead.count("probe") < 5 || len(s.failed()) > 0 {
			t.Errorf("asked %d times, probed %d times, failures %v", dead.asked(), dead.count("probe"), s.failed())
		}
		s.r.maintained.set("somebody works on it")
		time.Sleep(time.Minute)
		probes := dead.count("probe")
		s.r.maintained.set("")
		time.Sleep(30 * time.Second)
		if dead.asked() != 1 || dead.count("probe") == probes {
			t.Errorf("asked %d times, probed %d times", dead.asked(), dead.count("probe")-probes)
		}
		dead.mu.Lock()
		dead.died = make(chan struct{})
		dead.mu.Unlock()
		first.set(false) // takes the other one along
		time.Sleep(15 * time.Second)
		if dead.asked() != 2 || !dead.is() {
			t.Errorf("asked %d times", dead.asked())
		}
	})
}

// TestMaintenanceTouchesNothing: no call at all, whatever dies; a replacement by hand is no failure afterwards.
func TestMaintenanceTouchesNothing(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &script{}
			s := newStage(t, config.OnFailMove, p)
			s.begin(t, state.Granted)
			time.Sleep(time.Minute)
			s.r.maintained.set("the cluster is in maintenance")
			synctest.Wait()
			calls := len(p.all())
			p.set(false)
			if replaced {
				close(p.died)
			}
			time.Sleep(10 * time.Minute)
			if len(p.all()) != calls || len(s.failed()) > 0 {
				t.Errorf("calls %v, failures %v", p.all()[calls:], s.failed())
			}
			if st := s.r.account().Resources; !strings.Contains(st[0].Detail, "maintenance") {
				t.Errorf("shown as %+v", st)
			}
			p.set(replaced)
			s.r.maintained.set("")
			time.Sleep(time.Second)
			if failed := len(s.failed()) > 0; failed == replaced {
				t.Errorf("replaced %t: failures %v", replaced, s.failed())
			}
		})
	}
}

// TestStartIsFinishedInMaintenance: a group that is being started when maintenance begins is started.
func TestStartIsFinishedInMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newStage(t, config.OnFailMove, p)
		s.begin(t, state.Granted)
		s.r.maintained.set("the cluster is in maintenance")
		time.Sleep(time.Second)
		if !p.is() || !s.has(func(c state.Command) bool { return c.Started != nil }) {
			t.Error("not started")
		}
	})
}

// TestMaintenanceAndTheGrant: a group in maintenance is not let go for want of a coordinator, but is when its grant is
// over, or its boot is.
func TestMaintenanceAndTheGrant(t *testing.T) {
	s := newStage(t, config.OnFailMove, &script{})
	r := newRunner(s.n, "db", state.Grant{Node: "alpha", Boot: "a1", Token: 7})
	at := func(token uint64, phase state.GrantPhase) *state.State {
		return &state.State{Maintenance: true, Groups: map[string]*state.Group{"db": {Name: "db", Grant: &state.Grant{Node: "alpha", Boot: "a1", Token: token, Phase: phase, StopReason: "ordered"}}}}
	}
	if why := s.n.groups.mustEnd(at(7, state.Started), r, "nobody is heard"); why != "" {
		t.Error(why)
	}
	free := at(7, state.Started)
	free.Maintenance = false
	if why := s.n.groups.mustEnd(free, r, "nobody is heard"); why == "" {
		t.Error("goes on without a coordinator")
	}
	if why := s.n.groups.mustEnd(at(8, state.Started), r, ""); why == "" {
		t.Error("goes on without a grant")
	}
	if why := s.n.groups.mustEnd(at(7, state.Stopping), r, ""); why != "ordered" {
		t.Errorf("stop: %q", why)
	}
	s.n.groups.banished = "proven off"
	if why := s.n.groups.mustEnd(at(7, state.Started), r, ""); why != "proven off" {
		t.Errorf("banished: %q", why)
	}
}

// TestCheckBeforeStart: what says itself that it would not start is not started, and halts or fences nothing; it is
// asked when what it needs is there.
func TestCheckBeforeStart(t *testing.T) {
	for _, onFail := range []string{config.OnFailStop, config.OnFailFence} {
		synctest.Test(t, func(t *testing.T) {
			disk := &script{}
			fs := &script{checkFirst: disk}
			bad := &script{checked: fmt.Errorf("%w: it is enabled", resources.ErrSetup)}
			s := newStage(t, onFail, disk, fs, bad)
			s.begin(t, state.Granted)
			time.Sleep(time.Second)
			f := s.failed()
			if len(f) != 1 || f[0].Resource != "part2" || !strings.Contains(f[0].Error, "wrong setup: it is enabled") || f[0].Verdict != "" {
				t.Fatalf("%+v", f)
			}
			if fs.count("start") != 1 || bad.count("start") != 0 || !s.has(func(c state.Command) bool { return c.Stopped != nil }) {
				t.Error("started, or not stopped", fs.all(), bad.all())
			}
		})
	}
}

// TestVerdicts: what a failed start, and a failure of what runs, ask for.
func TestVerdicts(t *testing.T) {
	for onFail, want := range map[string]state.Verdict{
		"": "", config.OnFailRestart: "", config.OnFailMove: "", config.OnFailIgnore: "", config.OnFailStop: state.Halt, config.OnFailFence: state.Fence,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, onFail, &script{startFail: errors.New("no licence")})
			s.begin(t, state.Granted)
			time.Sleep(time.Second)
			if f := s.failed(); len(f) != 1 || f[0].Verdict != want {
				t.Errorf("%q: %+v", onFail, f)
			}
		})
	}
}

// TestRestartAsksFirst: a node that stood still restarts nothing before it has asked whether it holds the group still.
func TestRestartAsksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newStage(t, config.OnFailRestart, p)
		s.begin(t, state.Granted)
		time.Sleep(time.Second)
		s.n.trust.look(func() { s.n.trust.lose(time.Now(), time.Minute) })
		p.set(false)
		close(p.died)
		time.Sleep(time.Minute)
		if n := p.count("start"); n != 1 {
			t.Fatalf("started %d times", n)
		}
		era, _ := s.n.trust.question()
		s.n.trust.answered(era)
		p.mu.Lock()
		p.died = make(chan struct{})
		p.mu.Unlock()
		time.Sleep(time.Second)
		if n := p.count("start"); n != 2 || !p.is() {
			t.Fatalf("started %d times", n)
		}
	})
}

// TestMonitorAsksFirst: a node that stood still neither looks at what it may not hold any more nor tells of it.
func TestMonitorAsksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newStage(t, config.OnFailMove, p)
		s.begin(t, state.Granted)
		time.Sleep(time.Minute)
		s.n.trust.look(func() { s.n.trust.lose(time.Now(), time.Minute) })
		p.set(false)
		looks := p.count("probe")
		time.Sleep(time.Minute)
		if n := p.count("probe"); n != looks || len(s.failed()) > 0 {
			t.Fatalf("looked %d times, and told of %v", n-looks, s.failed())
		}
		era, _ := s.n.trust.question()
		s.n.trust.answered(era)
		time.Sleep(time.Minute)
		if n := p.count("probe"); n == looks || len(s.failed()) != 1 {
			t.Fatalf("looked %d times, and told of %v", n-looks, s.failed())
		}
	})
}

// TestRecordOfRestarts: the next daemon goes on with the count and the policy of the last one; what an older daemon
// recorded means restarts.
func TestRecordOfRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newStage(t, config.OnFailRestart, p)
		s.begin(t, state.Granted)
		time.Sleep(time.Second)
		p.set(false)
		time.Sleep(15 * time.Second)
		if !p.is() || len(s.failed()) > 0 {
			t.Fatal("not restarted", s.failed())
		}
		s.cancel()
		h, err := s.n.recall("db")
		if err != nil || len(h.Restarts) != 1 || h.Resources[0].OnFail != config.OnFailRestart {
			t.Fatal(h, err)
		}
		p.set(false)
		s.begin(t, state.Started)
		time.Sleep(time.Second)
		if f := s.failed(); len(f) != 1 || p.count("start") != 2 {
			t.Errorf("failures %v, starts %d", f, p.count("start"))
		}
	})
	s := newStage(t, config.OnFailMove, &script{})
	if err := os.MkdirAll(s.n.heldDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	old := `{"token":7,"resources":[{"name":"part0","kind":"part0","options":{}}]}`
	if err := os.WriteFile(s.n.heldFile("db"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := s.n.recall("db")
	if err != nil {
		t.Fatal(err)
	}
	if parts, err := h.parts(s.n, "db"); err != nil || parts[0].onFail() != config.OnFailRestart {
		t.Error(parts, err)
	}
}

// TestNotReady: what would not start here is told beforehand, where it can be told.
func TestNotReady(t *testing.T) {
	disk := &script{}
	fs, bad := &script{checkFirst: disk}, &script{}
	s := newStage(t, config.OnFailMove, disk, fs, bad)
	s.n.ready.look(t.Context())
	if why := s.n.notReady(); len(why) != 0 {
		t.Errorf("%v", why) // the disk may come with the first resource
	}
	bad.checked = fmt.Errorf("%w: it is enabled", resources.ErrSetup)
	s.n.ready.look(t.Context())
	if why := s.n.notReady()["db"]; !strings.Contains(why, "part2: wrong setup") {
		t.Errorf("%q", why)
	}
	disk.checked = fmt.Errorf("%w: link down", resources.ErrNode)
	s.n.ready.look(t.Context())
	if why := s.n.notReady()["db"]; !strings.Contains(why, "part0: fault of this node: link down") {
		t.Errorf("%q", why)
	}
	s.n.Config.Groups[0].Allow = []string{"beta"}
	s.n.ready.look(t.Context())
	if why := s.n.notReady(); len(why) != 0 {
		t.Errorf("not allowed here: %v", why)
	}
	for _, x := range []*script{disk, fs, bad} {
		if x.count("start")+x.count("stop") > 0 {
			t.Errorf("%s was touched: %v", x.Name, x.all())
		}
	}
}

// TestHungCheck: a question before the start that never returns has started nothing. It gets the group tried elsewhere,
// and its node is not fenced for want of a stop; unless an earlier daemon may have started the resource.
func TestHungCheck(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk, fs := &script{}, &script{checkHangs: make(chan struct{})}
			s := newStage(t, config.OnFailFence, disk, fs)
			if recorded {
				parts, err := buildParts(s.n, "db", s.n.Config.Groups[0].Resources, 7)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.n.hold("db", parts, held{Token: 7}); err != nil {
					t.Fatal(err)
				}
			}
			s.begin(t, state.Granted)
			time.Sleep(2 * time.Minute)
			if f := s.failed(); len(f) != 1 || f[0].Resource != "part1" || f[0].Verdict != "" || fs.count("start") > 0 {
				t.Errorf("failures %+v, calls %v", f, fs.all())
			}
			stopped := s.has(func(c state.Command) bool { return c.Stopped != nil })
			stopFailed := s.has(func(c state.Command) bool { return c.StopFailed != nil })
			if stopped == recorded || stopFailed != recorded || stopped && disk.is() {
				t.Errorf("recorded %t: stopped %t, stop failed %t", recorded, stopped, stopFailed)
			}
			close(fs.checkHangs)
			time.Sleep(2 * time.Minute)
			if !s.has(func(c state.Command) bool { return c.Stopped != nil }) || disk.is() || fs.count("start") > 0 {
				t.Errorf("afterwards: %v, %v", disk.all(), fs.all())
			}
		})
	}
}
