//go:build systemdhost

package systemd

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

const installed = sleeper + "[Install]\nWantedBy=multi-user.target\n"

// cure runs the command that an error offers, after "run: ".
func cure(t *testing.T, err error) {
	t.Helper()
	found := regexp.MustCompile(`run: (.*)$`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatalf("no cure in %q", err)
	}
	if out, err := exec.Command("sh", "-ec", found[1]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", found[1], err, out)
	}
}

func linkUnit(t *testing.T, target, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(file)
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file); os.Remove(filepath.Dir(file)); systemctl(t, "daemon-reload") })
	systemctl(t, "daemon-reload")
}

// TestRefused: what must not be managed is refused, by Check and by Start, and the cure that is offered helps.
func TestRefused(t *testing.T) {
	const vendor = "/usr/lib/systemd/system"
	for name, c := range map[string]struct {
		unit    string
		prepare func(t *testing.T)
		words   []string
		cured   bool
	}{
		"enabled":             {installed, func(t *testing.T) { systemctl(t, "enable", "app.service") }, []string{"is enabled", "systemctl disable app.service"}, true},
		"enabled at runtime":  {installed, func(t *testing.T) { systemctl(t, "enable", "--runtime", "app.service") }, []string{"is enabled", "systemctl disable --runtime app.service"}, true},
		"masked":              {"", func(t *testing.T) { linkUnit(t, "/dev/null", unitDir+"/app.service") }, []string{"is masked", "systemctl unmask app.service"}, false},
		"missing":             {"", nil, []string{"does not exist on this host"}, false},
		"bad setting":         {"[Service]\nType=exec\n", nil, []string{"cannot be loaded (bad-setting", "systemd-analyze verify app.service"}, false},
		"another name":        {sleeper, func(t *testing.T) { linkUnit(t, "real.service", unitDir+"/app.service") }, []string{"another name of real.service"}, false},
		"not by hand":         {"[Unit]\nRefuseManualStart=yes\n" + sleeper, nil, []string{"RefuseManualStart"}, false},
		"not stopped by hand": {"[Unit]\nRefuseManualStop=yes\n" + sleeper, nil, []string{"RefuseManualStop"}, false},
		"unneeded":            {"[Unit]\nStopWhenUnneeded=yes\n" + sleeper, nil, []string{"StopWhenUnneeded"}, false},
		"oneshot":             {"[Service]\nType=oneshot\nExecStart=true\n", nil, []string{"RemainAfterExit"}, false},
		"wanted by the vendor": {sleeper, func(t *testing.T) {
			linkUnit(t, unitDir+"/app.service", vendor+"/multi-user.target.wants/app.service")
		}, []string{"multi-user.target is active", "WantedBy", "rm /usr/lib/systemd/system/multi-user.target.wants/app.service"}, true},
		"wanted by an enabled service": {sleeper, func(t *testing.T) {
			writeUnit(t, "boss.service", "[Unit]\nRequires=app.service\n"+installed)
			systemctl(t, "enable", "boss.service")
		}, []string{"boss.service is enabled", "RequiredBy", "systemctl disable --now boss.service"}, true},
		"wanted by one that is wanted by an enabled service": {sleeper, func(t *testing.T) {
			writeUnit(t, "clerk.service", "[Unit]\nWants=app.service\n"+sleeper)
			writeUnit(t, "boss.service", "[Unit]\nWants=clerk.service\n"+installed)
			systemctl(t, "enable", "boss.service")
		}, []string{"boss.service is enabled and starts clerk.service", "systemctl disable --now boss.service"}, true},
		"socket": {sleeper, func(t *testing.T) {
			writeUnit(t, "app.socket", "[Socket]\nListenStream=/run/app.sock\n")
			systemctl(t, "start", "app.socket")
		}, []string{"app.socket is active (listening)", "TriggeredBy", "systemctl disable --now app.socket"}, true},
		"timer": {sleeper, func(t *testing.T) {
			writeUnit(t, "app.timer", "[Timer]\nOnUnitInactiveSec=1d\nOnBootSec=30d\n[Install]\nWantedBy=timers.target\n")
			systemctl(t, "enable", "app.timer")
		}, []string{"app.timer is enabled", "systemctl disable --now app.timer"}, true},
		"after a failure": {sleeper, func(t *testing.T) {
			writeUnit(t, "boss.service", "[Unit]\nOnFailure=app.service\n"+sleeper)
			systemctl(t, "start", "boss.service")
		}, []string{"OnFailureOf", "systemctl disable --now boss.service"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			switch {
			case name == "another name":
				writeUnit(t, "real.service", c.unit)
			case c.unit != "":
				writeUnit(t, "app.service", c.unit)
			}
			if c.prepare != nil {
				c.prepare(t)
			}
			s := newService(t, "app.service", 1)
			for _, err := range []error{s.Check(t.Context()), s.Start(t.Context())} {
				wantError(t, err, c.words...)
				if !errors.Is(err, resources.ErrSetup) {
					t.Errorf("%v is no wrong setup", err)
				}
			}
			t.Log(s.Check(t.Context()))
			if !c.cured {
				mustStop(t, s)
				return
			}
			cure(t, s.Check(t.Context()))
			if err := s.Check(t.Context()); err != nil {
				t.Fatalf("after its cure: %v", err)
			}
			mustStart(t, s)
			wantState(t, s, resources.Active)
			mustStop(t, s)
		})
	}
}

// A socket that is switched on later is switched off by the stop: or the next connection would start the service.
func TestTriggerIsStoppedToo(t *testing.T) {
	writeUnit(t, "app.service", sleeper)
	writeUnit(t, "app.socket", "[Socket]\nListenStream=/run/app.sock\nService=app.service\n[Unit]\nRefuseManualStop=no\n")
	s := newService(t, "app.service", 1)
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("a socket that is off does no harm: %v", err)
	}
	systemctl(t, "start", "app.socket")
	c, err := net.Dial("unix", "/run/app.sock")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for begun := time.Now(); property(t, "app.service", "ActiveState") != "active"; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 5*time.Second {
			t.Fatal("the socket does not start the service")
		}
	}
	wantState(t, s, resources.Failed) // there is no grant
	mustStop(t, s)
	if state := property(t, "app.socket", "ActiveState"); state != "inactive" {
		t.Errorf("the socket is %s", state)
	}
	mustStart(t, s)
	mustStop(t, s)
}

// A service may bring its own socket: the two come and go together.
func TestServiceWithItsSocket(t *testing.T) {
	writeUnit(t, "app.service", "[Unit]\nRequires=app.socket\n"+sleeper)
	writeUnit(t, "app.socket", "[Socket]\nListenStream=/run/app.sock\n[Install]\nWantedBy=sockets.target\n")
	s := newService(t, "app.service", 1)
	for range 2 {
		mustStart(t, s)
		if state := property(t, "app.socket", "ActiveState"); state != "active" {
			t.Errorf("the socket is %s", state)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		mustStop(t, s)
		if state := property(t, "app.socket", "ActiveState"); state != "inactive" {
			t.Errorf("the socket is %s", state)
		}
	}
	systemctl(t, "start", "app.socket")
	for _, err := range []error{s.Check(t.Context()), s.Start(t.Context())} {
		wantError(t, err, "app.socket is active", "disable --now app.socket")
	}
	mustStop(t, s)
	systemctl(t, "enable", "app.socket")
	wantError(t, s.Check(t.Context()), "app.socket is enabled")
}

// Of two services of a group the one may require the other.
func TestServicesOfOneGroup(t *testing.T) {
	writeUnit(t, "app.service", sleeper)
	writeUnit(t, "boss.service", "[Unit]\nRequires=app.service\nAfter=app.service\n"+sleeper)
	lower, upper := newService(t, "app.service", 1), newService(t, "boss.service", 1)
	for range 2 {
		mustStart(t, lower)
		mustStart(t, upper)
		for _, s := range []*service{lower, upper} {
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
		}
		mustStop(t, upper)
		mustStop(t, lower)
	}
}

// A file of the same name in /etc goes before ours, and would take the token away.
func TestDropInIsHidden(t *testing.T) {
	writeUnit(t, "app.service", sleeper)
	dir := filepath.Join(unitDir, "app.service.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, dropInName), []byte("[Service]\nNice=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "app.service", 1)
	err := s.Start(t.Context())
	wantError(t, err, "not given the token", "systemctl cat app.service")
	if !errors.Is(err, resources.ErrSetup) {
		t.Errorf("%v is no wrong setup", err)
	}
	mustStop(t, s)
}

// Whatever the names hold, systemd reads back what was written.
func TestEnvironmentIsQuoted(t *testing.T) {
	writeUnit(t, "app.service", sleeper)
	o := Options{Unit: "app.service"}
	env := envOf(1)
	env.Resource = `a "b" 100% \n %n $HOME 'c' ` + "\u00fc"
	r, err := o.New(env)
	if err != nil {
		t.Fatal(err)
	}
	s := r.(*service)
	mustStart(t, s)
	wantState(t, s, resources.Active)
	got := strings.Join(environ(t, mainPID(t, "app.service")), "\n")
	if !strings.Contains(got, "HAMGR_RESOURCE="+env.Resource+"\n") {
		t.Errorf("environment:\n%s", got)
	}
	mustStop(t, s)
}
