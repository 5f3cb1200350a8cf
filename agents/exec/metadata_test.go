package exec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Every fence agent of the host says what it is, and hamgr understands it.
func TestInstalledAgents(t *testing.T) {
	t.Parallel()
	needAgents(t)
	installed := installed()
	if len(installed) < 20 {
		t.Fatalf("only %d fence agents are installed (Debian package fence-agents)", len(installed))
	}
	// Two at a time: each is a Python program.
	ask := func(names []string) {
		for _, name := range names {
			if path, err := findProgram(name); err == nil {
				readMetadata(within(t, 20*time.Second), path)
			}
		}
	}
	var second sync.WaitGroup
	second.Go(func() { ask(installed[len(installed)/2:]) })
	ask(installed[:len(installed)/2])
	second.Wait()

	var mute, unfit []string
	fit := 0
	for _, name := range installed {
		path, err := findProgram(name)
		if err != nil {
			t.Error(err)
			continue
		}
		m, err := readMetadata(within(t, 20*time.Second), path)
		if err != nil {
			// Agents whose own dependencies are missing print none, and are refused with the reason.
			mute = append(mute, name)
			t.Logf("%s has no metadata: %v", name, err)
			continue
		}
		if m.name == "" || m.short == "" || len(m.parameters) < 3 || len(m.actions) < 3 {
			t.Errorf("%s: %+v", name, m)
		}
		if err := m.unfit(path); err != nil {
			unfit = append(unfit, name)
			if !errors.Is(err, agents.ErrUnfit) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		fit++
		for _, p := range m.parameters {
			if kinds[p.kind] == "" && p.kind != "string" || p.doc == "" || p.old && m.meaning(p) == p.name {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
	t.Logf("%d installed, %d fit, %d unfit (%s), %d without metadata (%s)", len(installed), fit, len(unfit), strings.Join(unfit, " "), len(mute), strings.Join(mute, " "))
	if len(mute) > len(installed)/10 {
		t.Errorf("%d of %d print no metadata", len(mute), len(installed))
	}
	for _, name := range []string{
		"fence_scsi", "fence_mpath", "fence_brocade", "fence_ifmib", "fence_sanbox2", "fence_cisco_mds", // fabric
		"fence_ovh", "fence_rcd_serial", "fence_kdump", "fence_heuristics_ping", // nothing to read, or no off
		"fence_sbd", "fence_dummy", "fence_crosslink", "fence_compute", "fence_evacuate", // no power
	} {
		if slices.Contains(installed, name) && !slices.Contains(unfit, name) {
			t.Errorf("%s is not refused", name)
		}
	}
	for _, name := range []string{"fence_ipmilan", "fence_apc", "fence_apc_snmp", "fence_redfish", "fence_bladecenter", "fence_raritan", "fence_eaton_snmp"} {
		if slices.Contains(unfit, name) || slices.Contains(mute, name) {
			t.Errorf("%s is refused", name)
		}
	}
}

// An agent that switches no power is refused under any name, and nothing is asked of it.
func TestUnfit(t *testing.T) {
	needAgents(t)
	link := filepath.Join(t.TempDir(), "fence_mine")
	if err := os.Symlink("/usr/sbin/fence_dummy", link); err != nil {
		t.Fatal(err)
	}
	o := Kind().Options().(*Options)
	o.Command = link
	if miss := errWith(open(t, o).Off(within(t, 5*time.Second), ""), agents.ErrUnfit, "fence_dummy is for tests, and switches nothing"); miss != "" {
		t.Error(miss)
	}
	o.Command = "fence_brocade"
	_, err := open(t, o).Status(within(t, 5*time.Second), "1")
	if miss := errWith(err, agents.ErrUnfit, "fence_brocade: reading the power state of plug \"1\"", "unfencing"); miss != "" {
		t.Error(miss)
	}
	for change, word := range map[string]string{
		`name="on" automatic="0"|name="on" automatic="1"`:               "unfencing",
		`name="on" automatic="0"|name="on" automatic="0" on_target="1"`: "unfencing",
		`<action name="status" />|`:                                     `no action "status"`,
		`<action name="off" />|`:                                        `no action "off"`,
		`name="fence_test"|name="fence_scsi"`:                           "fence_scsi cuts off storage",
	} {
		s := script(t, `touch $d/ran; echo "Status: OFF"; exit 2`)
		from, to, _ := strings.Cut(change, "|")
		s.write("metadata", strings.Replace(testMetadata, from, to, 1))
		h := open(t, s.options())
		_, err := h.Status(within(t, 5*time.Second), "1")
		for _, err := range []error{err, h.Off(within(t, 5*time.Second), "1"), h.On(within(t, 5*time.Second), "1"), h.Check(within(t, 5*time.Second), "1")} {
			if miss := errWith(err, agents.ErrUnfit, word); miss != "" {
				t.Errorf("%s: %s", change, miss)
			}
		}
		if s.has("ran") {
			t.Errorf("%s: it was run", change)
		}
	}
	s := script(t, `exit 0`)
	s.write("metadata", strings.Replace(testMetadata, `<action name="on" automatic="0"/>`, "", 1))
	if miss := errWith(open(t, s.options()).On(within(t, 5*time.Second), "1"), agents.ErrUnfit, `no action "on"`); miss != "" {
		t.Error(miss)
	}
	if err := open(t, s.options()).Off(within(t, 5*time.Second), "1"); err != nil {
		t.Error(err)
	}
}

func TestParseMetadata(t *testing.T) {
	m, err := parseMetadata([]byte("/usr/sbin/x:5: DeprecationWarning: old\n" + testMetadata))
	if err != nil {
		t.Fatal(err)
	}
	if m.plugName() != "plug" || !m.can("list") || m.can("diag") || m.short != "A test" || m.long != "For tests." {
		t.Errorf("%+v", m)
	}
	if p, ok := m.parameter("power-timeout"); !ok || p.name != "power_timeout" || p.kind != "second" || p.fallback != "20" {
		t.Errorf("%+v", p)
	}
	if p, _ := m.parameter("ipaddr"); !p.old || m.meaning(p) != "ip" {
		t.Errorf("%+v means %s", p, m.meaning(p))
	}
	if p, _ := m.parameter("method"); !slices.Equal(p.choices, []string{"onoff", "cycle"}) {
		t.Errorf("%+v", p)
	}
	deep := strings.Repeat("<a>", mostDepth+1)
	for name, text := range map[string]string{
		"empty":          "",
		"text":           "fence agent",
		"another root":   "<html></html>",
		"cut":            testMetadata[:len(testMetadata)/2],
		"a name twice":   strings.Replace(testMetadata, `name="ssl"`, `name="ip"`, 1),
		"an odd name":    strings.Replace(testMetadata, `name="ssl"`, `name="s=l"`, 1),
		"a line in it":   strings.Replace(testMetadata, `name="ssl"`, `name="s&#10;password"`, 1),
		"an empty name":  strings.Replace(testMetadata, `name="ssl"`, `name=""`, 1),
		"a long name":    strings.Replace(testMetadata, `name="ssl"`, `name="`+strings.Repeat("s", mostName+1)+`"`, 1),
		"deep":           `<resource-agent>` + deep,
		"many":           `<resource-agent><actions>` + strings.Repeat(`<action name="a"/>`, mostParameters+1) + `</actions></resource-agent>`,
		"entities":       `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><resource-agent shortdesc="&b;"></resource-agent>`,
		"not UTF-8":      `<resource-agent shortdesc="` + "\xff" + `"></resource-agent>`,
		"other encoding": `<?xml version="1.0" encoding="utf-7"?><resource-agent></resource-agent>`,
	} {
		if m, err := parseMetadata([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Metadata that is not what it should be: the device is refused, not driven by guess.
func TestBadMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		err   error
		words string
	}{
		"too long":  {`yes | head -c 2000000`, agents.ErrUnfit, "longer than 1024 KB"},
		"no XML":    {`echo hello`, agents.ErrUnfit, "not metadata"},
		"a failure": {`echo "No module named 'pycurl'" >&2; exit 1`, agents.ErrUnfit, "No module named 'pycurl'"},
		"nothing":   {`exit 0`, agents.ErrUnfit, "not metadata"},
	} {
		s := script(t, `touch $d/ran`)
		text := strings.Replace(s.read("fence_test"), "cat $d/metadata; exit 0", c.body+"; exit 0", 1)
		writeProgram(t, s.path, text)
		_, err := open(t, s.options()).Status(within(t, 5*time.Second), "1")
		if miss := errWith(err, c.err, c.words); miss != "" {
			t.Errorf("%s: %s", name, miss)
		}
		if s.has("ran") {
			t.Errorf("%s: it was run", name)
		}
	}
	s := script(t, "")
	writeProgram(t, s.path, strings.Replace(s.read("fence_test"), "cat $d/metadata;", "sleep 60;", 1))
	start := time.Now()
	_, err := open(t, s.options()).Status(within(t, 50*time.Millisecond), "1")
	if agents.Lasting(err) || err == nil || time.Since(start) > 500*time.Millisecond {
		t.Errorf("a stall: %v after %v", err, time.Since(start))
	}
}

// The metadata is asked for once, and again when the program has changed. It is handed no secret.
func TestMetadataIsKept(t *testing.T) {
	s := script(t, `echo "Status: ON"`)
	writeProgram(t, s.path, strings.Replace(s.read("fence_test"), "then cat", "then cp $d/stdin $d/asked; echo x >>$d/count; cat", 1))
	for range 3 {
		if _, err := open(t, s.options()).Status(within(t, 5*time.Second), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if s.read("count") != "x\n" || s.read("asked") != "action=metadata\n" {
		t.Errorf("asked %q with %q", s.read("count"), s.read("asked"))
	}
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(s.path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, s.options()).Status(within(t, 5*time.Second), "1"); err != nil || s.read("count") != "x\nx\n" {
		t.Errorf("after a change: asked %q, %v", s.read("count"), err)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(testMetadata))
	f.Add([]byte(`<resource-agent><parameters><parameter name="a" obsoletes="b"/><parameter name="b" deprecated="1"/></parameters></resource-agent>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMetadata(b)
		if err != nil {
			return
		}
		for _, p := range m.parameters {
			if !isName(p.name) || strings.ContainsAny(p.doc+p.fallback+strings.Join(p.choices, ""), "\n\r\x00\x1b") {
				t.Errorf("%+v", p)
			}
			m.meaning(p)
			p.refuses("x")
			p.describe()
		}
		o := &Options{Options: map[string]string{"ip": "x", "port": "y"}}
		if settings, err := o.settings(m); err == nil {
			m.checkPlug("1", settings)
		}
		m.unfit("/usr/sbin/fence_x")
		m.notes("/usr/sbin/fence_x")
		m.example("fence_x")
	})
}
