package ocf

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func TestParseMetadata(t *testing.T) {
	m, err := parseMetadata([]byte(testMetadata))
	must(t, err)
	if m.name != "test" || m.doc != "For tests & nothing else." || len(m.parameters) != 7 || m.promotable() || !m.can("validate-all") {
		t.Errorf("%+v", m)
	}
	if p, _ := m.parameter("file"); !p.required || !p.unique || p.doc != "A file." {
		t.Errorf("%+v", p)
	}
	if p, _ := m.parameter("mode"); p.kind != "select" || p.fallback != "dry" || !slices.Equal(p.choices, []string{"dry", "live"}) || p.unique {
		t.Errorf("%+v", p)
	}
	if p, _ := m.parameter("path"); p.newer != "file" {
		t.Errorf("%+v", p)
	}
	for depth, want := range map[int]time.Duration{0: 7 * time.Second, 9: 7 * time.Second, 10: 70 * time.Second, 20: 70 * time.Second} {
		if got := m.interval(depth); got != want {
			t.Errorf("interval of depth %d: %v", depth, got)
		}
	}
	if m.timeout("monitor") != 2*time.Second || m.timeout("stop") != time.Second || m.timeout("x") != 0 || (&metadata{}).interval(0) != 10*time.Second {
		t.Error("timeouts")
	}
	for text, want := range map[string]time.Duration{
		"20s": 20 * time.Second, "20": 20 * time.Second, " 1500ms ": 1500 * time.Millisecond, "2min": 2 * time.Minute, "1h": time.Hour, "20 s": 20 * time.Second,
		"": 0, "s": 0, "-1": 0, "1.5s": 0, "25h": 0, "99999999999999999999": 0, "1d": 0, "4294967295us": 4294967295 * time.Microsecond,
	} {
		if got := duration(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for name, text := range map[string]string{
		"empty":         "",
		"text":          "resource agent",
		"another root":  "<html></html>",
		"cut":           testMetadata[:len(testMetadata)/2],
		"a name twice":  strings.Replace(testMetadata, `name="port"`, `name="fast"`, 1),
		"an odd name":   strings.Replace(testMetadata, `name="port"`, `name="p=t"`, 1),
		"a line in it":  strings.Replace(testMetadata, `name="port"`, `name="p&#10;PATH"`, 1),
		"an empty name": strings.Replace(testMetadata, `name="port"`, `name=""`, 1),
		"a long name":   strings.Replace(testMetadata, `name="port"`, `name="`+strings.Repeat("p", mostName+1)+`"`, 1),
		"deep":          `<resource-agent>` + strings.Repeat("<a>", mostNesting+1) + strings.Repeat("</a>", mostNesting+1) + `</resource-agent>`,
		"many":          `<resource-agent><actions>` + strings.Repeat(`<action name="a"/>`, mostEntries+1) + `</actions></resource-agent>`,
		"entities":      `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><resource-agent><longdesc>&b;</longdesc></resource-agent>`,
		"not UTF-8":     "<resource-agent><longdesc>\xff</longdesc></resource-agent>",
	} {
		if m, err := parseMetadata([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(testMetadata))
	f.Add([]byte(`<resource-agent><parameters><parameter name="a"><deprecated/><longdesc>&lt;b&gt;<b>c</b></longdesc></parameter></parameters></resource-agent>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMetadata(b)
		if err != nil {
			return
		}
		for _, p := range m.parameters {
			if !isName(p.name) || strings.ContainsAny(p.doc+p.fallback+strings.Join(p.choices, ""), "\n\r\x00\x1b") {
				t.Errorf("%+v", p)
			}
			p.refuses("x")
			p.describe()
		}
		n := name{"a", "b"}
		m.meant(n, "x")
		m.notes()
		m.example(n)
		o := &ocf{opts: Options{Params: map[string]string{"x": "y"}}, name: n}
		_ = o.check(m)
		if i := m.interval(10); i <= 0 || i > mostTime || m.timeout("start") < 0 {
			t.Errorf("times: %+v", m.actions)
		}
	})
}

// Metadata that are not what they should be: the resource is refused, not driven by guess.
func TestBadMetadata(t *testing.T) {
	for name, c := range map[string]struct{ body, words string }{
		"too long":      {`yes | head -c 2000000`, "longer than 1024 KB"},
		"no XML":        {`echo hello`, "not metadata"},
		"a failure":     {`echo "No module named 'x'" >&2; exit 1`, "No module named 'x'"},
		"nothing":       {``, "not metadata"},
		"killed":        {`kill -9 $$`, "signal: killed"},
		"no monitor":    {`sed 's/monitor/watch/g' $d/metadata`, `no action "monitor"`},
		"a lying name":  {`sed 's/name="port"/name="LD_PRELOAD="/' $d/metadata`, "LD_PRELOAD"},
		"left a child":  {`sleep 60 & echo hello`, "not metadata"},
		"left in a set": {`setsid sleep 60 & echo hello`, "not metadata"},
	} {
		s := script(t, `[ $1 = meta-data ] && { `+c.body+`
exit 0; }`)
		r := s.resource()
		wantErr(t, r.Start(within(t, 5*time.Second)), resources.ErrSetup, c.words)
		if s.asked() != "" {
			t.Errorf("%s: asked %s", name, s.asked())
		}
		if left := bearing("OCF_ROOT=" + s.dir); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
	s := script(t, `[ $1 = meta-data ] && sleep 60`)
	err := s.resource().Start(within(t, 100*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, resources.ErrSetup) {
		t.Errorf("a stall: %v", err)
	}
}

// They are asked for once, and again when the program has changed.
func TestMetadataAreKept(t *testing.T) {
	s := script(t, "")
	r := s.resource()
	for range 3 {
		wantState(t, r, resources.Inactive)
	}
	if n := strings.Count(s.read("asked"), "meta-data"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	later := time.Now().Add(time.Second)
	must(t, os.Chtimes(r.path, later, later))
	wantState(t, r, resources.Inactive)
	if n := strings.Count(s.read("asked"), "meta-data"); n != 2 {
		t.Errorf("after a change: asked %d times", n)
	}
}

// Every agent of the host says what it is, and is understood.
func TestInstalledAgents(t *testing.T) {
	t.Parallel()
	all := Kind().Programs()
	if len(all) < 100 {
		t.Fatalf("only %d agents are installed (Debian package resource-agents)", len(all))
	}
	var mu sync.Mutex
	var failed, refused, unchecked []string
	look := func(names []string) {
		for _, program := range names {
			d, err := Kind().Describe(within(t, 20*time.Second), program)
			n, _ := parseName(program)
			mu.Lock()
			if err != nil {
				failed = append(failed, program)
				t.Logf("%s: %v", program, err)
			} else {
				m, _ := readMetadata(within(t, time.Second), defaultRoot, n)
				if m.promotable() {
					refused = append(refused, n.kind)
				}
				if !m.can("validate-all") {
					unchecked = append(unchecked, n.kind)
				}
				if d.Program != program || d.Doc == "" || d.Example == "" || m.timeout("stop") == 0 || !m.can("monitor") {
					t.Errorf("%+v", d)
				}
				for _, o := range d.Options {
					if o.Type == "" || o.Doc == "" && n.kind != "rabbitmq-server-ha" {
						t.Errorf("%s: %+v", program, o)
					}
				}
			}
			mu.Unlock()
		}
	}
	var half sync.WaitGroup
	half.Go(func() { look(all[len(all)/2:]) })
	look(all[:len(all)/2])
	half.Wait()
	slices.Sort(refused)
	t.Logf("%d agents; no metadata: %v; promotable: %v; without validate-all: %v", len(all), failed, refused, unchecked)
	if len(failed) > 0 { // none in resource-agents 4.12
		t.Errorf("%d are not understood: %v", len(failed), failed)
	}
	for _, name := range []string{"Stateful", "pgsql", "galera", "redis"} {
		if !slices.Contains(refused, name) {
			t.Errorf("%s is not refused", name)
		}
	}
}

func TestDescribe(t *testing.T) {
	d, err := Kind().Describe(within(t, 5*time.Second), "heartbeat:IPaddr2")
	must(t, err)
	if d.Program != "ocf:heartbeat:IPaddr2" || !strings.Contains(d.Example, `params = { ip = "..." }`) || !strings.Contains(d.Example, `start_timeout = "20s"`) {
		t.Errorf("%+v", d)
	}
	i := slices.IndexFunc(d.Options, func(o resources.DescribedOption) bool { return o.Name == "ip" })
	if i < 0 || !d.Options[i].Required || d.Options[i].Type != "string" || !strings.Contains(d.Options[i].Doc, "No two resources") {
		t.Errorf("%+v", d.Options)
	}
	for _, program := range []string{"ocf:heartbeat:NoSuch", "IPaddr2", "", "ocf:../../bin:sh"} {
		if _, err := Kind().Describe(within(t, 5*time.Second), program); err == nil {
			t.Errorf("%q is described", program)
		}
	}
	s := script(t, "")
	s.write("metadata", strings.Replace(testMetadata, "<actions>", `<actions><action name="promote" timeout="1s"/>`, 1))
	d, err = describe(within(t, 5*time.Second), s.dir, "ocf:test:test")
	must(t, err)
	if notes := strings.Join(d.Notes, "\n"); !strings.Contains(notes, "unpromoted = true") || !strings.Contains(notes, "parameter path is old") || !strings.Contains(notes, `monitor_interval = "70s" and monitor_timeout = "2s" for depth = 10`) {
		t.Errorf("%s", notes)
	}
	if i := slices.IndexFunc(d.Options, func(o resources.DescribedOption) bool {
		return o.Name == "path" || o.Name == "passwd" && o.Type != "secret"
	}); i >= 0 {
		t.Errorf("%+v", d.Options[i])
	}
	if got := programs(s.dir); !slices.Equal(got, []string{"ocf:test:test"}) {
		t.Errorf("programs: %v", got)
	}
}
