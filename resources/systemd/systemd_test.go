package systemd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	long := strings.Repeat("a", 300) + ".service"
	for unit, words := range map[string]string{
		"postgresql.service":         "",
		"postgresql@16-main.service": "",
		`dev-disk\x2dby.service`:     "",
		"a@b@c.service":              "",
		"":                           "no unit",
		"postgresql":                 `lacks its suffix; write "postgresql.service"`,
		"postgresql.Service":         "lacks its suffix",
		"postgresql@.service":        "is a template",
		"@x.service":                 "is no name",
		".service":                   "is no name",
		"a/b.service":                "is no name",
		"../b.service":               "is no name",
		"a b.service":                "is no name",
		"a\n.service":                "is no name",
		"ü.service":                  "is no name",
		"*.service":                  "is no name",
		"hamgr.service":              "cannot manage itself",
		"app.socket":                 "outlives the socket",
		"app.timer":                  "outlives the timer",
		"app.path":                   "outlives it",
		"app.target":                 "outlives the target",
		"srv.mount":                  `kind = "filesystem"`,
		"app.slice":                  "name the services",
		long:                         "255",
	} {
		err := (&Options{Unit: unit}).Validate()
		if words == "" {
			if err != nil {
				t.Errorf("%q: %v", unit, err)
			}
			continue
		}
		var key *resources.KeyError
		if !errors.As(err, &key) || key.Key != "unit" || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v; want %q", unit, err, words)
		}
		if _, err := (&Options{Unit: unit}).New(envOf(1)); err == nil {
			t.Errorf("%q: a resource was made", unit)
		}
	}
	if err := (&Options{Unit: "a.service", ReadyAfter: -1}).Validate(); err == nil {
		t.Error("a negative ready_after is taken for valid")
	}
}

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		active string
		change func(f *fakeSystemd)
		other  bool // there is a grant, and it is another one
		want   resources.State
		detail string
	}{
		"active":                 {"active", nil, false, resources.Active, "active"},
		"reloading":              {"reloading", nil, false, resources.Active, "reloading"},
		"refreshing":             {"refreshing", nil, false, resources.Active, "refreshing"},
		"active, another grant":  {"active", nil, true, resources.Failed, "token 9 (resource app of group db)"},
		"inactive":               {"inactive", nil, false, resources.Inactive, "inactive"},
		"failed":                 {"failed", nil, false, resources.Inactive, "failed"},
		"failed, with processes": {"failed", func(f *fakeSystemd) { f.processes = []string{"7 (a)"} }, false, resources.Failed, "left over: 7 (a)"},
		"inactive, with a job":   {"inactive", func(f *fakeSystemd) { f.props["Job"] = []any{uint32(5), "/job"} }, false, resources.Failed, "job 5"},
		"activating":             {"activating", nil, false, resources.Failed, "activating"},
		"deactivating":           {"deactivating", nil, false, resources.Failed, "deactivating"},
		"maintenance":            {"maintenance", nil, false, resources.Failed, "maintenance"},
		"a new word":             {"resting", nil, false, resources.Unknown, "resting"},
		"no word":                {"", nil, false, resources.Unknown, "does not tell"},
		"another type":           {"", func(f *fakeSystemd) { f.props["ActiveState"] = true }, false, resources.Unknown, "does not tell"},
		"another case":           {"Inactive", nil, false, resources.Unknown, "Inactive"},
		"not there":              {"inactive", func(f *fakeSystemd) { f.props["LoadState"] = "not-found" }, false, resources.Inactive, "no such unit"},
		"not there, but active":  {"active", func(f *fakeSystemd) { f.props["LoadState"] = "not-found" }, false, resources.Active, "active"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.props["ActiveState"] = c.active
			if c.change != nil {
				c.change(f)
			}
			s := f.service(t, 1)
			if c.other {
				s.env.Token = 9
			}
			if err := s.writeDropIn(); err != nil {
				t.Fatal(err)
			}
			s.env.Token = 1
			if detail := wantState(t, s, c.want); !strings.Contains(detail, c.detail) {
				t.Errorf("detail %q, want %q", detail, c.detail)
			}
			f.wantClosed(t)
		})
	}
}

func TestProbeWithoutGrant(t *testing.T) {
	f := newFake()
	f.props["ActiveState"] = "active"
	s := f.service(t, 1)
	wantState(t, s, resources.Failed)
	// A grant that cannot be read is not known.
	if err := os.MkdirAll(s.dropInPath("app.service"), 0o755); err != nil {
		t.Fatal(err)
	}
	if state, _, err := s.Probe(t.Context()); state != resources.Unknown || err == nil {
		t.Errorf("%s, %v", state, err)
	}
}

func TestDropInIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		mustStop(t, s)
		if found, _ := os.ReadDir(s.dropIns); len(found) != 0 {
			t.Errorf("left: %v", found)
		}
		mustStart(t, s)
		foreign := filepath.Join(filepath.Dir(s.dropInPath("app.service")), "override.conf")
		if err := os.WriteFile(foreign, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		mustStop(t, s)
		if _, err := os.Stat(foreign); err != nil {
			t.Errorf("somebody else's file is gone: %v", err)
		}
	})
}

func TestReadyAfterWithFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		s.opts.ReadyAfter = 5 * time.Second
		begun := time.Now()
		mustStart(t, s)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		mustStop(t, s)
		time.AfterFunc(time.Second, func() { f.set(func(f *fakeSystemd) { f.become("failed", "failed") }) })
		wantError(t, s.Start(deadline(t, 20*time.Second)), "failed")
	})
}

func FuzzDropIn(f *testing.F) {
	f.Add([]byte("[Service]\nEnvironment=\"HAMGR_TOKEN=1\"\n"), "db", `a "b" \ %n`, uint64(5))
	f.Add([]byte("Environment=\"HAMGR_TOKEN=\\\n"), "", "", uint64(0))
	f.Add([]byte{0}, "d\nb", "\x00", uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, group, resource string, token uint64) {
		parseDropIn(b)
		env := envOf(token)
		env.Group, env.Resource = group, resource
		text, err := dropIn(env)
		if err != nil {
			return
		}
		if got := parseDropIn(text); got != grantOf(env) {
			t.Errorf("%+v became %+v by %s", grantOf(env), got, text)
		}
		if n := bytes.Count(text, []byte("\n")); n != 11 {
			t.Errorf("%d lines: %s", n, text)
		}
	})
}

func FuzzUnit(f *testing.F) {
	f.Add("postgresql@16-main.service")
	f.Fuzz(func(t *testing.T, name string) {
		if msg, _ := wrongUnit(name); msg == "" && (strings.ContainsAny(name, "/\x00\n ") || !strings.HasSuffix(name, ".service")) {
			t.Errorf("%q is taken for a service", name)
		}
	})
}
