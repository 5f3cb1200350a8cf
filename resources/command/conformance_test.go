package command

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// place is where a resource lives. The judge is /proc: whatever runs the copy of the program that lies here.
type place struct {
	testing.TB
	dir    string
	env    resources.Env // of the last resource
	mu     sync.Mutex
	launch chan struct{} // nothing is launched while it is open
}

func newPlace(t testing.TB) *place {
	p := &place{TB: t, dir: t.TempDir()}
	path, err := exec.LookPath("sleep")
	p.must(err)
	program, err := os.ReadFile(path)
	p.must(err)
	syscall.ForkLock.RLock() // a child that holds it open for writing would keep it from being executed
	err = os.WriteFile(p.file("sleep"), program, 0o755)
	syscall.ForkLock.RUnlock()
	p.must(err)
	p.must(os.Mkdir(p.file("work"), 0o755))
	return p
}

func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// new makes a resource, whose options are completed.
func (p *place) new(env resources.Env, complete func(*Options)) (resources.Resource, error) {
	o := Kind().Options().(*Options)
	o.WorkingDirectory = p.file("work")
	complete(o)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r, err := o.New(env)
	if err != nil {
		return nil, err
	}
	p.env = env
	c := r.(*command)
	c.dial = func(context.Context) (manager, error) { return nil, errNoSystemd } // the same wherever the test runs
	c.spawn = func(name string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
		p.mu.Lock()
		launch := p.launch
		p.mu.Unlock()
		if launch != nil {
			<-launch
		}
		return os.StartProcess(name, argv, attr)
	}
	return r, nil
}

// active names the processes by their numbers and the times of their starts. The program is told by its file: the
// kernel shows a new program's arguments and environment a moment after execve(2) is known to have succeeded.
func (p *place) active() (names []string) {
	entries, err := os.ReadDir("/proc")
	p.must(err)
	for _, e := range entries {
		program, err := os.Readlink("/proc/" + e.Name() + "/exe")
		if err != nil || !strings.HasPrefix(program, p.file("sleep")) { // it may have been moved since
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); err == nil && len(fields) > 20 {
			names = append(names, e.Name()+" since "+fields[19])
		}
	}
	return names
}

// record is what the resource has noted; a look notes nothing.
func (p *place) record() string {
	b, _ := os.ReadFile(filepath.Join(p.env.Dir, recordFile)) // it may have none
	return string(b)
}

func (p *place) kill() {
	for _, name := range p.active() {
		number, _, _ := strings.Cut(name, " ")
		pid, err := strconv.Atoi(number)
		p.must(err)
		_ = unix.Kill(pid, unix.SIGKILL) // it may have just ended
	}
}

func (p *place) away(path func() string) resourcetest.Fault {
	return resourcetest.Fault{
		Begin: func() { p.must(os.Rename(path(), path()+".away")) }, End: func() { p.must(os.Rename(path()+".away", path())) },
	}
}

func (p *place) at(name string) func() string { return func() string { return p.file(name) } }

// locked is the resource in the hands of another daemon.
func (p *place) locked() resourcetest.Hang {
	var held *os.File
	return resourcetest.Hang{Fault: resourcetest.Fault{
		Begin: func() {
			var err error
			held, err = notes.Lock(context.Background(), p.env.Dir)
			p.must(err)
		},
		End: func() { held.Close() },
	}, Calls: []string{"probe", "start", "stop"}}
}

// TestConformance: one process that runs.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		p := newPlace(t)
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				return p.new(env, func(o *Options) { o.Run = []string{p.file("sleep"), "86397"} })
			},
			Active:  p.active,
			Picture: p.record,
			Kill:    p.kill,
			Troubles: map[string]resourcetest.Trouble{
				"no program":           {Fault: p.away(p.at("sleep")), Is: resources.ErrNode},
				"no working directory": {Fault: p.away(p.at("work")), Is: resources.ErrNode},
			},
			Hangs: map[string]resourcetest.Hang{
				"another daemon": p.locked(),
				"the launch": {Fault: resourcetest.Fault{
					Begin: func() { p.mu.Lock(); defer p.mu.Unlock(); p.launch = make(chan struct{}) },
					End:   func() { p.mu.Lock(); defer p.mu.Unlock(); close(p.launch); p.launch = nil },
				}, Calls: []string{"start"}},
			},
			Blind:    map[string]resourcetest.Fault{"no private directory": p.away(func() string { return p.env.Dir })},
			Stuck:    map[string]resourcetest.Fault{"no private directory": p.away(func() string { return p.env.Dir })},
			Patience: 20 * time.Second, Operations: 30,
		}
	}})
}
