package ocf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func TestLife(t *testing.T) {
	s := script(t, "")
	r := s.resource()
	wantState(t, r, resources.Inactive)
	must(t, r.Check(within(t, 5*time.Second)))
	must(t, r.Start(within(t, 5*time.Second)))
	wantState(t, r, resources.Active)
	must(t, r.Start(within(t, 5*time.Second))) // active under the same token
	must(t, s.resource().Start(within(t, 5*time.Second)))
	must(t, r.Stop(within(t, 5*time.Second)))
	wantState(t, r, resources.Inactive)
	must(t, r.Stop(within(t, 5*time.Second)))
	if want := "monitor validate-all monitor start monitor monitor monitor monitor stop monitor monitor monitor"; s.asked() != want {
		t.Errorf("asked: %s\nwant:  %s", s.asked(), want)
	}
}

// Every exit status of every action, as the API has them.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		state resources.State
		err   error
	}{
		0: {resources.Active, nil}, 1: {resources.Failed, nil}, 7: {resources.Inactive, nil}, 8: {resources.Failed, nil}, 9: {resources.Failed, nil},
		190: {resources.Active, nil}, 191: {resources.Failed, nil},
		2: {resources.Unknown, resources.ErrSetup}, 3: {resources.Unknown, resources.ErrSetup}, 6: {resources.Unknown, resources.ErrSetup},
		4: {resources.Unknown, resources.ErrNode}, 5: {resources.Unknown, resources.ErrNode},
		10: {}, 126: {}, 127: {}, 137: {}, 189: {}, 192: {}, 193: {}, 255: {}, -1: {},
	} {
		r := result{status: status, ending: "x", stderr: "ocf-exit-reason:because\n"}
		state, detail, err := r.state()
		if state != want.state || (state == resources.Unknown) != (err != nil) {
			t.Errorf("monitor ends with %d: %s %q %v, want %s", status, state, detail, err, want.state)
		}
		if state == resources.Unknown {
			wantErr(t, err, want.err, "because")
		}
	}
}

func TestStatusesOfActions(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{1: nil, 2: resources.ErrSetup, 3: resources.ErrSetup, 4: resources.ErrNode, 5: resources.ErrNode, 6: resources.ErrSetup, 7: nil, 8: nil, 190: nil} {
		s := script(t, fmt.Sprintf(`[ "$1" = start ] && { echo ocf-exit-reason:because >&2; exit %d; }`, status))
		r := s.resource()
		wantErr(t, r.Start(within(t, 5*time.Second)), want, "start by ocf:test:test", "because")
		must(t, r.Stop(within(t, 5*time.Second)))
		if refused := status >= 2 && status <= 6; strings.Contains(s.asked(), "stop") == refused {
			t.Errorf("after a start that ended with %d: asked %s", status, s.asked())
		}
		s.program(fmt.Sprintf(`[ "$1" = stop ] && { echo ocf-exit-reason:because >&2; rm -f $d/up; exit %d; }`, status))
		must(t, r.Start(within(t, 5*time.Second)))
		wantErr(t, r.Stop(within(t, 5*time.Second)), want, "stop by ocf:test:test", "because")
	}
}

// An agent that cannot even begin on this host, or with this setup, does not make a stop that fails.
func TestRefusedStartIsNoFailedStop(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"only start and stop refuse": `case $1 in start|stop) exit 5 ;; esac`,
		"all refuse":                 `case $1 in start|stop|monitor|validate-all) exit 6 ;; esac`,
	} {
		s := script(t, body)
		r := s.resource()
		if err := r.Start(within(t, 5*time.Second)); err == nil {
			t.Errorf("%s: it started", name)
		}
		if err := r.Stop(within(t, 5*time.Second)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := script(t, "")
	r := s.resource()
	must(t, os.Remove(s.file("resource.d/test/test")))
	wantErr(t, r.Start(within(t, 5*time.Second)), resources.ErrNode, "not installed")
	_, _, err := r.Probe(within(t, 5*time.Second))
	wantErr(t, err, resources.ErrNode, "not installed")
	must(t, r.Stop(within(t, 5*time.Second)))
}

// What hamgr has begun to start is stopped for certain, or the stop fails: whatever has happened to the agent since.
func TestStopOfWhatWasStartedIsStrict(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *scripted, o *Options){
		"the agent is gone":        func(s *scripted, _ *Options) { os.Remove(s.file("resource.d/test/test")) },
		"all refuse":               func(s *scripted, _ *Options) { s.program(`exit 5`) },
		"a value cannot be read":   func(s *scripted, o *Options) { o.ParamFiles = map[string]string{"passwd": s.file("none")} },
		"stop says that it did":    func(s *scripted, _ *Options) { s.program(`[ $1 = stop ] && exit 0`) },
		"monitor fails after stop": func(s *scripted, _ *Options) { s.program(`[ $1 = monitor ] && exit 1`) },
		"monitor is not known":     func(s *scripted, _ *Options) { s.program(`[ $1 = monitor ] && exit 3`) },
		"monitor is killed":        func(s *scripted, _ *Options) { s.program(`[ $1 = monitor ] && kill -9 $$`) },
		"monitor stalls":           func(s *scripted, _ *Options) { s.program(`[ $1 = monitor ] && sleep 60`) },
		"stop stalls":              func(s *scripted, _ *Options) { s.program(`[ $1 = stop ] && sleep 60`) },
		"stop fails":               func(s *scripted, _ *Options) { s.program(`[ $1 = stop ] && rm -f $d/up && exit 1`) },
		"it runs promoted":         func(s *scripted, _ *Options) { s.program(`[ $1 = monitor ] && exit 8`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := script(t, "")
			must(t, s.resource().Start(within(t, 5*time.Second)))
			o := s.options()
			change(s, o)
			if err := s.open(o, 7).Stop(within(t, time.Second)); err == nil {
				t.Error("it says that it stopped")
			}
			s.program("")
			r := s.resource()
			must(t, r.Stop(within(t, 5*time.Second)))
			wantState(t, r, resources.Inactive)
		})
	}
}

// What has failed is stopped before it is started again, whoever started it.
func TestFailedIsStoppedFirst(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = monitor ] && [ -e $d/ill ] && exit 1`)
	r := s.resource()
	s.write("ill", "")
	wantErr(t, r.Start(within(t, 5*time.Second)), nil, "hamgr did not start it", "stopped first")
	must(t, os.Remove(s.file("ill")))
	must(t, r.Start(within(t, 5*time.Second)))
	s.write("ill", "")
	wantState(t, r, resources.Failed)
	wantErr(t, r.Start(within(t, 5*time.Second)), nil, "what was started is failed", "stopped first")
	if n := strings.Count(s.asked(), "start"); n != 1 {
		t.Errorf("asked %s", s.asked())
	}
	must(t, os.Remove(s.file("ill")))
	must(t, r.Stop(within(t, 5*time.Second)))
}

// A start is only believed when the monitor agrees.
func TestStartThatLies(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = start ] && exit 0`)
	wantErr(t, s.resource().Start(within(t, 5*time.Second)), nil, "its monitor", "not running")
	for _, status := range []int{1, 8, 9, 191} {
		s := script(t, fmt.Sprintf(`[ $1 = monitor ] && [ -e $d/up ] && exit %d`, status))
		wantErr(t, s.resource().Start(within(t, 5*time.Second)), nil, "its monitor", "failed")
	}
	s = script(t, `[ $1 = monitor ] && [ -e $d/up ] && echo 'ocf-exit-reason:a disk is missing' >&2 && exit 190`)
	must(t, s.resource().Start(within(t, 5*time.Second)))
	wantState(t, s.resource(), resources.Active, "degraded", "a disk is missing")
}

// What runs already has a token of its own, or none.
func TestActiveUnderAnotherToken(t *testing.T) {
	s := script(t, "")
	must(t, s.open(s.options(), 7).Start(within(t, 5*time.Second)))
	newer := s.open(s.options(), 8)
	wantState(t, newer, resources.Failed, "token 7")
	wantErr(t, newer.Start(within(t, 5*time.Second)), nil, "token 7", "stopped first")
	must(t, newer.Stop(within(t, 5*time.Second)))
	must(t, newer.Start(within(t, 5*time.Second)))
	wantState(t, newer, resources.Active)

	s = script(t, "")
	s.write("up", "")
	r := s.resource()
	wantState(t, r, resources.Active, "did not start it")
	wantErr(t, r.Start(within(t, 5*time.Second)), nil, "did not start it", "stopped first")
	must(t, r.Stop(within(t, 5*time.Second)))
	if s.has("up") {
		t.Error("it still runs")
	}
	must(t, r.Start(within(t, 5*time.Second)))
	// The kernel has started anew: the record means nothing any more.
	s.boot = "boot-" + newMark()
	wantState(t, s.resource(), resources.Active, "did not start it")
}

// What was started is monitored with its depth and interval; anything else is looked at as in a probe.
func TestProbesAndMonitors(t *testing.T) {
	s := script(t, `echo "$OCF_RESKEY_CRM_meta_name $OCF_RESKEY_CRM_meta_interval $OCF_CHECK_LEVEL" >>$d/how`)
	o := s.options()
	o.Depth = 15
	r := s.open(o, 7)
	wantState(t, r, resources.Inactive)
	must(t, r.Start(within(t, 5*time.Second)))
	wantState(t, r, resources.Active)
	must(t, r.Stop(within(t, 5*time.Second)))
	want := "  \nmonitor 0 0\nmonitor 0 0\nstart 0 \nmonitor 70000 15\nmonitor 70000 15\nstop 0 \nmonitor 0 0\n"
	if got := s.read("how"); strings.TrimLeft(got, " \n") != strings.TrimLeft(want, " \n") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The agent's file may be replaced by a newer one, with other parameters, while its service runs.
func TestAgentChangesWhileActive(t *testing.T) {
	s := script(t, "")
	r := s.resource()
	must(t, r.Start(within(t, 5*time.Second)))
	s.write("metadata", strings.ReplaceAll(testMetadata, `"file"`, `"datei"`))
	s.program("# changed")
	wantState(t, r, resources.Active)
	must(t, r.Stop(within(t, 5*time.Second)))
	_, _, err := r.Probe(within(t, 5*time.Second))
	wantErr(t, err, resources.ErrSetup, `knows no parameter "file"`)
}

func TestCancelledBefore(t *testing.T) {
	s := script(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := s.resource()
	_, _, err := r.Probe(ctx)
	for _, err := range []error{err, r.Start(ctx), r.Stop(ctx), r.Check(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if s.asked() != "" {
		t.Errorf("asked %s", s.asked())
	}
}
