package ocf

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	good := func() *Options {
		o := Kind().Options().(*Options)
		o.Agent = "ocf:heartbeat:IPaddr2"
		return o
	}
	must(t, good().Validate())
	for name, c := range map[string]struct {
		change func(*Options)
		key    string
		words  string
	}{
		"no agent":       {func(o *Options) { o.Agent = "" }, "agent", "ocf:heartbeat:IPaddr2"},
		"no provider":    {func(o *Options) { o.Agent = "IPaddr2" }, "agent", "ocf:heartbeat:IPaddr2"},
		"another class":  {func(o *Options) { o.Agent = "systemd:nginx" }, "agent", "class systemd"},
		"a way out":      {func(o *Options) { o.Agent = "ocf:..:sh" }, "agent", ""},
		"a path":         {func(o *Options) { o.Agent = "ocf:heartbeat:../x" }, "agent", ""},
		"a hidden file":  {func(o *Options) { o.Agent = "ocf:heartbeat:.x" }, "agent", ""},
		"two names":      {func(o *Options) { o.Agent = "ocf:a:b:c" }, "agent", ""},
		"odd parameter":  {func(o *Options) { o.Params = map[string]string{"a-b": ""} }, "params", `"a-b"`},
		"equals sign":    {func(o *Options) { o.Params = map[string]string{"a=b": ""} }, "params", ""},
		"no name":        {func(o *Options) { o.Params = map[string]string{"": ""} }, "params", ""},
		"a secret":       {func(o *Options) { o.Params = map[string]string{"monpassword": "hunter22"} }, "params", "param_files = { monpassword"},
		"NUL":            {func(o *Options) { o.Params = map[string]string{"a": "hunter22\x00"} }, "params", "NUL"},
		"a long value":   {func(o *Options) { o.Params = map[string]string{"a": strings.Repeat("x", mostValue+1)} }, "params", "64 KB"},
		"a meta value":   {func(o *Options) { o.Params = map[string]string{"CRM_meta_timeout": "1"} }, "params", "set by hamgr"},
		"a check level":  {func(o *Options) { o.Params = map[string]string{"OCF_CHECK_LEVEL": "10"} }, "params", "use depth"},
		"relative file":  {func(o *Options) { o.ParamFiles = map[string]string{"a": "b"} }, "param_files", "whole path"},
		"twice":          {func(o *Options) { o.Params, o.ParamFiles = map[string]string{"a": ""}, map[string]string{"a": "/b"} }, "param_files", "params too"},
		"negative depth": {func(o *Options) { o.Depth = -1 }, "depth", ""},
		"relative root":  {func(o *Options) { o.Root = "usr" }, "ocf_root", ""},
	} {
		o := good()
		c.change(o)
		err := o.Validate()
		var key *resources.KeyError
		if !errors.As(err, &key) || key.Key != c.key || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The parameters are held against the metadata before anything is run.
func TestParameters(t *testing.T) {
	for name, c := range map[string]struct {
		params map[string]string
		words  string // of the error; empty if it is none
	}{
		"fine":                   {map[string]string{"file": "/x", "port": "8080", "fast": "Yes", "mode": "live"}, ""},
		"an old name":            {map[string]string{"path": "/x"}, ""},
		"empty values":           {map[string]string{"file": "", "port": "", "fast": "", "mode": ""}, ""},
		"the type is not meant":  {map[string]string{"file": "/x", "odd": "2min"}, ""},
		"nearly":                 {map[string]string{"file": "/x", "ports": "1"}, `did you mean "port"?`},
		"not nearly":             {map[string]string{"file": "/x", "whatever": "1"}, "hamgr resource describe ocf:test:test"},
		"missing":                {nil, `needs the parameter "file"`},
		"no number":              {map[string]string{"file": "/x", "port": "http"}, `"http" is no whole number`},
		"no truth":               {map[string]string{"file": "/x", "fast": "perhaps"}, `"perhaps" is neither`},
		"no choice":              {map[string]string{"file": "/x", "mode": "wet"}, `"wet" is none of dry, live`},
		"case counts in a name":  {map[string]string{"File": "/x"}, `did you mean "file"?`},
		"all that is wrong told": {map[string]string{"ports": "1", "fast": "x"}, `needs the parameter`},
	} {
		s := script(t, "")
		o := s.options()
		o.Params = c.params
		r := s.open(o, 7)
		_, _, probeErr := r.Probe(within(t, 5*time.Second))
		for _, err := range []error{r.Check(within(t, 5*time.Second)), probeErr, r.Start(within(t, 5*time.Second))} {
			var key *resources.KeyError
			switch {
			case c.words == "" && err != nil:
				t.Errorf("%s: %v", name, err)
			case c.words != "" && !errors.As(err, &key):
				t.Errorf("%s: %v is about no key", name, err)
			case c.words != "":
				wantErr(t, err, resources.ErrSetup, c.words)
			}
		}
		if c.words != "" && s.asked() != "" {
			t.Errorf("%s: asked %s", name, s.asked())
		}
	}
}

func TestPromotable(t *testing.T) {
	s := script(t, "")
	s.write("metadata", strings.Replace(testMetadata, "<actions>", `<actions><action name="promote" timeout="1s"/><action name="demote" timeout="1s"/>`, 1))
	o := s.options()
	r := s.open(o, 7)
	for _, err := range []error{r.Check(within(t, 5*time.Second)), r.Start(within(t, 5*time.Second))} {
		wantErr(t, err, resources.ErrSetup, "promoted role", "unpromoted = true")
	}
	must(t, r.Stop(within(t, 5*time.Second)))
	o.Unpromoted = true
	r = s.open(o, 7)
	must(t, r.Start(within(t, 5*time.Second)))
	must(t, r.Stop(within(t, 5*time.Second)))
}

func TestValidateAll(t *testing.T) {
	for status, want := range map[string]error{"2": resources.ErrSetup, "5": resources.ErrNode, "6": resources.ErrSetup, "1": nil} {
		s := script(t, `[ $1 = validate-all ] && { echo ocf-exit-reason:because >&2; exit `+status+`; }`)
		wantErr(t, s.resource().Check(within(t, 5*time.Second)), want, "because")
	}
	s := script(t, `[ $1 = validate-all ] && exit 3`)
	must(t, s.resource().Check(within(t, 5*time.Second)))
	s = script(t, `[ $1 = validate-all ] && exit 1`)
	s.write("metadata", strings.Replace(testMetadata, `<action name="validate-all" timeout="5s"/>`, "", 1))
	must(t, s.resource().Check(within(t, 5*time.Second)))
	if s.asked() != "" {
		t.Errorf("asked %s", s.asked())
	}
}

// The environment is the whole of what the API and the agents need, and nothing else.
func TestEnvironment(t *testing.T) {
	t.Setenv("HAMGR_SECRET", "hunter22")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	s := script(t, `cat /proc/$$/environ >$d/environ.$1; tr '\0' '\n' </proc/$$/cmdline >$d/cmdline`)
	s.write("password", "hunter23\n")
	o := s.options()
	o.Params = map[string]string{"file": "a b\n$(reboot) 'ü", "port": "1"}
	o.ParamFiles = map[string]string{"passwd": s.file("password")}
	o.Depth = 10
	r := s.open(o, 7)
	r.env.Group, r.env.Resource = "web_1", "app_"
	must(t, r.Start(within(t, 5*time.Second)))
	base := []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", "HOME=/",
		"OCF_ROOT=" + s.dir, "OCF_RA_VERSION_MAJOR=1", "OCF_RA_VERSION_MINOR=1", "OCF_RESOURCE_TYPE=test", "OCF_RESOURCE_PROVIDER=test",
	}
	all := append(base,
		"HA_RSCTMP="+s.file("tmp"), "OCF_RESOURCE_INSTANCE=web__1_app__",
		"OCF_RESKEY_CRM_meta_on_node=alpha", "OCF_RESKEY_CRM_meta_on_node_uuid=alpha",
		"OCF_RESKEY_file=a b\n$(reboot) 'ü", "OCF_RESKEY_port=1", "OCF_RESKEY_passwd=hunter23",
		"HAMGR_TOKEN=7", "HAMGR_GROUP=web_1", "HAMGR_RESOURCE=app_", "HAMGR_NODE=alpha", "HAMGR_BOOT="+s.boot, "HAMGR_DIR="+s.file("private"),
	)
	for action, want := range map[string][]string{
		"meta-data": base,
		"start":     append(slices.Clone(all), "OCF_RESKEY_CRM_meta_name=start", "OCF_RESKEY_CRM_meta_interval=0"),
		"monitor":   append(slices.Clone(all), "OCF_RESKEY_CRM_meta_name=monitor", "OCF_RESKEY_CRM_meta_interval=70000", "OCF_CHECK_LEVEL=10"),
	} {
		var got []string
		for entry := range strings.SplitSeq(strings.TrimRight(s.read("environ."+action), "\x00"), "\x00") {
			if strings.HasPrefix(entry, markVariable) {
				continue
			}
			if ms, ok := strings.CutPrefix(entry, "OCF_RESKEY_CRM_meta_timeout="); ok && action != "meta-data" {
				if len(ms) != 4 || ms < "3000" || ms > "5000" {
					t.Errorf("%s: timeout %s", action, ms)
				}
				continue
			}
			got = append(got, entry)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", action, got, want)
		}
	}
	if got, want := s.read("cmdline"), "/bin/sh\n"+r.path+"\nmonitor\n"; got != want {
		t.Errorf("command line %q, want %q", got, want)
	}
}

// Secrets are in no error, no detail and no log, even if the agent prints them.
func TestSecretsAreNotRepeated(t *testing.T) {
	for _, secret := range []string{"hunter23", "ab", `se"cr'et$ t;`} {
		s := script(t, `echo "the password is $OCF_RESKEY_passwd" >&2; case $1 in start|stop|validate-all|monitor) set -x; : $OCF_RESKEY_passwd; echo "ocf-exit-reason:bad password '$OCF_RESKEY_passwd'" >&2; [ $1 = monitor ] && exit 7; exit 1 ;; esac`)
		s.write("password", secret)
		o := s.options()
		o.ParamFiles = map[string]string{"passwd": s.file("password")}
		r := s.open(o, 7)
		var log bytes.Buffer
		r.env.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for _, call := range []func(context.Context) error{r.Start, r.Check, r.Stop} {
			err := call(within(t, 5*time.Second))
			if err == nil || !strings.Contains(err.Error(), hidden) {
				t.Errorf("%v: not even tried", err)
			}
			if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), "bad", ""), secret) {
				t.Errorf("%q is in %q", secret, err)
			}
		}
		if len(secret) > 2 && strings.Contains(log.String(), secret) || !strings.Contains(log.String(), hidden) {
			t.Errorf("%q is in the log, or nothing is:\n%s", secret, &log)
		}
	}
	s := script(t, "")
	s.write("password", "x")
	must(t, os.Chmod(s.file("password"), 0o644))
	for _, path := range []string{s.file("password"), s.file("none"), s.dir} {
		o := s.options()
		o.ParamFiles = map[string]string{"passwd": path}
		wantErr(t, s.open(o, 7).Start(within(t, 5*time.Second)), resources.ErrSetup, "parameter passwd")
	}
}

// No two resources have the same name for their agents, whatever they are called.
func TestInstance(t *testing.T) {
	seen := map[string]string{}
	var names []string
	for _, a := range []string{"a", "_", "b"} {
		for _, b := range []string{"", "a", "_", "b", "__"} {
			for _, c := range []string{"", "a", "_"} {
				names = append(names, a+b+c)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, group := range names {
		for _, resource := range names {
			if group[0] == '_' || resource[0] == '_' {
				continue // such names are refused by the configuration
			}
			got := instance(group, resource)
			if other, taken := seen[got]; taken {
				t.Errorf("%s for %s|%s and %s", got, group, resource, other)
			}
			seen[got] = group + "|" + resource
		}
	}
	if got := instance("../a b", "c/\n"); strings.ContainsAny(got, "/ \n") {
		t.Error(got)
	}
}
