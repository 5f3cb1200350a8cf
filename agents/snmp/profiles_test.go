package snmp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
)

// golden says once more, by hand and from the sources, where outlet 3 of each family is read
// and switched, and by which values: status=on/off, off object=value, on object=value. All
// below 1.3.6.1.4.1. A family that is not here, or that differs, fails.
var golden = map[string]string{
	"apc-ms":              "318.1.1.4.4.2.1.3.3=1/2, 318.1.1.4.4.2.1.3.3=2, 318.1.1.4.4.2.1.3.3=1",
	"apc-msplus":          "318.1.1.6.7.1.1.5.1.1.3=1/2, 318.1.1.6.5.1.1.5.1.1.3=3, 318.1.1.6.5.1.1.5.1.1.3=1",
	"apc-rpdu":            "318.1.1.12.3.5.1.1.4.3=1/2, 318.1.1.12.3.3.1.1.4.3=2, 318.1.1.12.3.3.1.1.4.3=1",
	"apc-rpdu2":           "318.1.1.26.9.2.3.1.5.3=2/1, 318.1.1.26.9.2.4.1.5.3=2, 318.1.1.26.9.2.4.1.5.3=1",
	"apc-ms6":             "318.1.1.4.4.2.1.3.3=1/2, 318.1.1.12.3.3.1.1.4.3=2, 318.1.1.12.3.3.1.1.4.3=1",
	"eaton-epdu":          "534.6.6.7.6.6.1.2.0.3=1/0, 534.6.6.7.6.6.1.3.0.3=0, 534.6.6.7.6.6.1.4.0.3=0",
	"eaton-managed":       "534.6.6.6.1.2.2.1.3.2=1/0, 534.6.6.6.1.2.2.1.3.2=0, 534.6.6.6.1.2.2.1.3.2=1",
	"eaton-pulizzi":       "20677.2.6.3.3.0=1/2, 20677.2.6.2.4.0=2, 20677.2.6.2.4.0=1",
	"eaton-nlogic":        "534.7.1.5.2.1.1.1.3=2/1, 534.7.1.5.2.1.10.1.3=1, 534.7.1.5.2.1.10.1.3=2",
	"hpe-mpdu":            "232.165.7.5.2.1.1.0.3=2/1, 232.165.7.5.2.1.2.0.3=0, 232.165.7.5.2.1.3.0.3=0",
	"hpe-g2":              "232.165.11.5.2.1.1.1.3=2/1, 232.165.11.5.2.1.2.1.3=0, 232.165.11.5.2.1.3.1.3=0",
	"raritan-px2":         "13742.6.4.1.2.1.3.1.3=7/8, 13742.6.4.1.2.1.2.1.3=0, 13742.6.4.1.2.1.2.1.3=1",
	"raritan-px1":         "13742.4.1.2.2.1.3.3=1/0, 13742.4.1.2.2.1.3.3=0, 13742.4.1.2.2.1.3.3=1",
	"cyberpower-epdu":     "3808.1.1.3.3.5.1.1.4.3=1/2, 3808.1.1.3.3.3.1.1.4.3=2, 3808.1.1.3.3.3.1.1.4.3=1",
	"cyberpower-epdu2":    "3808.1.1.6.6.1.4.1.5.3=1/2, 3808.1.1.6.6.1.5.1.5.3=2, 3808.1.1.6.6.1.5.1.5.3=1",
	"sentry3":             "1718.3.2.3.1.5.1.1.3=1/0, 1718.3.2.3.1.11.1.1.3=2, 1718.3.2.3.1.11.1.1.3=1",
	"sentry4":             "1718.4.1.8.3.1.1.1.1.3=1/2, 1718.4.1.8.5.1.2.1.1.3=2, 1718.4.1.8.5.1.2.1.1.3=1",
	"vertiv-v5":           "21239.5.2.3.5.1.4.3=1/2, 21239.5.2.3.5.1.6.3=4, 21239.5.2.3.5.1.6.3=2",
	"emerson-mph":         "476.1.42.3.8.50.20.1.95.1.1.3=2/1, 476.1.42.3.8.50.20.1.100.1.1.3=0, 476.1.42.3.8.50.20.1.100.1.1.3=1",
	"avocent-pm":          "10418.17.2.5.5.1.5.1.1.3=2/1, 10418.17.2.5.5.1.6.1.1.3=3, 10418.17.2.5.5.1.6.1.1.3=2",
	"tripplite-padm":      "850.10.2.3.5.1.2.1.3=2/1, 850.10.2.3.5.1.4.1.3=1, 850.10.2.3.5.1.4.1.3=2",
	"tripplite-webcardlx": "850.1.1.3.2.3.3.1.1.4.1.3=2/1, 850.1.1.3.2.3.3.1.1.6.1.3=1, 850.1.1.3.2.3.3.1.1.6.1.3=2",
	"ibm-ipdu":            "2.6.223.8.2.2.1.11.3=1/0, 2.6.223.8.2.2.1.11.3=0, 2.6.223.8.2.2.1.11.3=1",
	"enlogic":             "38446.1.5.4.1.4.1.3=1/0, 38446.1.5.5.1.4.1.3=1, 38446.1.5.5.1.4.1.3=2",
	"baytech":             "4779.1.3.5.3.1.3.1.3=1/0, 4779.1.3.5.3.1.3.1.3=0, 4779.1.3.5.3.1.3.1.3=1",
}

func TestGolden(t *testing.T) {
	if len(profiles) != len(golden) || len(profiles) < 20 {
		t.Errorf("%d families, %d golden", len(profiles), len(golden))
	}
	for i := range profiles {
		p := &profiles[i]
		t.Run(p.name, func(t *testing.T) {
			plug, err := parsePlug(plugOf(p.name))
			if err != nil {
				t.Fatal(err)
			}
			o, err := plug.outlet(p)
			if err != nil {
				t.Fatal(err)
			}
			values := map[string][]int{}
			for value, word := range p.states {
				values[word] = append(values[word], value)
				if r, known := p.reading(value); !known || (r.State == agents.Off) != (word == wordOff) || (r.State == agents.On) != (word == wordOn) {
					t.Errorf("%d (%s) reads %+v", value, word, r)
				}
			}
			for value := -10; value < 20; value++ {
				if r, known := p.reading(value); !known && r.State != agents.Unknown {
					t.Errorf("%d reads %+v", value, r)
				}
			}
			if len(values[wordOn]) != 1 || len(values[wordOff]) != 1 {
				t.Fatalf("on and off are %v", values)
			}
			cut := func(oid string) string { s, _ := strings.CutPrefix(oid, enterprises); return s }
			got := fmt.Sprintf("%s=%d/%d, %s=%d, %s=%d", cut(p.status.at(o)), values[wordOn][0], values[wordOff][0],
				cut(p.off.object.at(o)), p.off.value, cut(p.on.object.at(o)), p.on.value)
			if got != golden[p.name] {
				t.Errorf("is  %s\nnot %s", got, golden[p.name])
			}
		})
	}
}

// TestProfiles: what each row of the table must be, whatever family it is.
func TestProfiles(t *testing.T) {
	detected := map[string]string{}
	for _, p := range profiles {
		if p.doc == "" || p.source == "" || p.off == p.on {
			t.Errorf("%s: doc %q, source %q, off %v, on %v", p.name, p.doc, p.source, p.off, p.on)
		}
		parts := p.status.parts()
		if strings.Count(parts, "N") != 1 || !strings.HasSuffix(parts, "N") {
			t.Errorf("%s: an outlet is numbered %q", p.name, parts)
		}
		for _, c := range []column{p.status, p.off.object, p.on.object, p.names, p.ids} {
			if c != "" && (c.parts() != parts || !isOID(c.root())) {
				t.Errorf("%s: %s has other parts than the status", p.name, c)
			}
			if strings.ContainsFunc(string(c), func(r rune) bool { return !strings.ContainsRune("0123456789.+-", r) && !strings.ContainsRune(parts, r) }) {
				t.Errorf("%s: %s is no column", p.name, c)
			}
		}
		for letter := range p.lone {
			if !strings.Contains(parts[:len(parts)-1], string(letter)) {
				t.Errorf("%s: %c may be left out, and is no leading part", p.name, letter)
			}
		}
		for _, prefix := range p.detect {
			if other := detected[prefix]; other != "" || !isOID(prefix) || profileOf(prefix) == nil || profileOf(prefix).name != p.name {
				t.Errorf("%s: %s is that of %s too", p.name, prefix, other)
			}
			detected[prefix] = p.name
		}
	}
}

// TestAllOutlets: no outlet's number leads to the object that switches all outlets.
func TestAllOutlets(t *testing.T) {
	f := profileNamed("eaton-pulizzi")
	for _, s := range []string{"0", "1", "2", "65535", "65536"} {
		p, err := parsePlug(s)
		if err != nil {
			continue
		}
		o, err := p.outlet(f)
		if err == nil && f.off.object.at(o) == enterprises+"20677.2.6.2.1.0" {
			t.Errorf("outlet %s switches all", s)
		}
		if s == "0" && err == nil {
			t.Error("outlet 0 was taken")
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct{ named, stated, id, want string }{
		{"", "", enterprises + "318.1.3.4.6", "apc-rpdu2"},
		{"", "", enterprises + "318.1.3.4.8", "apc-rpdu2"},
		{"", "", enterprises + "318.1.3.4.60", "apc-ms"},
		{"", "", enterprises + "318.1.3.4.2", "apc-ms"},
		{"", "", enterprises + "318.1.3.5", ""},
		{"", "", enterprises + "8072.3.2.10", ""},
		{"", "", enterprises + "850.1.1.1", "tripplite-webcardlx"},
		{"", "", enterprises + "850.1", "tripplite-padm"},
		{"", "", enterprises + "21239.42.1.53", "vertiv-v5"},
		{"apc-ms", "", enterprises + "318.1.3.4.6", "apc-ms"},
		{"apc-ms6", "", enterprises + "318.1.3.4.6", "apc-ms6"},
		{"apc-rpdu2", "", enterprises + "318.1.3.4.2", ""},
		{"apc-rpdu2", enterprises + "318.1.3.4.2", enterprises + "318.1.3.4.2", "apc-rpdu2"},
		{"apc-rpdu2", enterprises + "318.1.3.4.6", enterprises + "318.1.3.4.2", ""},
		{"", enterprises + "318.1.3.4.6", enterprises + "318.1.3.4.8", ""},
		{"emerson-mph", "", enterprises + "476.1.42", "emerson-mph"},
		{"emerson-mph", "", enterprises + "1718.3", ""},
	} {
		got, err := choose(profileNamed(c.named), c.stated, c.id)
		if c.want == "" {
			wantError(t, err, agents.ErrUnfit, c.id)
		} else if err != nil || got.name != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	if !strings.Contains(profileNames(), "apc-ms, apc-ms6, apc-msplus") {
		t.Error(profileNames())
	}
}

func TestPlugs(t *testing.T) {
	for _, c := range []struct{ family, plug, number string }{
		{"apc-rpdu2", "3", "3"}, {"apc-rpdu2", " 3 = x ", "3"}, {"eaton-epdu", "3", "0.3"}, {"eaton-epdu", "2.3", "2.3"},
		{"raritan-px2", "12", "1.12"}, {"sentry3", "1.2.3", "1.2.3"}, {"apc-msplus", "2.3", "2.3"},
		{"sentry3", "3", ""}, {"sentry3", "1.3", ""}, {"apc-rpdu2", "1.3", ""}, {"apc-rpdu2", "0", ""}, {"sentry4", "1.1.0", ""},
	} {
		p, err := parsePlug(c.plug)
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.outlet(profileNamed(c.family))
		if c.number == "" {
			wantError(t, err, agents.ErrPlug, "")
		} else if err != nil || o.number(profileNamed(c.family)) != c.number {
			t.Errorf("%+v: %v, %v", c, o, err)
		}
	}
	for _, s := range []string{"", " ", "=x", "3=", "03", "1..2", ".", "99999", "name:", "a\nb", strings.Repeat("x", 300)} {
		_, err := parsePlug(s)
		wantError(t, err, agents.ErrPlug, "")
	}
	for s, want := range map[string]plug{
		"AA1":       {word: "AA1"},
		"AA1=x=y":   {word: "AA1", expect: "x=y"},
		"name:a=b ": {word: "a=b", named: true, expect: "a=b"},
		"name:3":    {word: "3", named: true, expect: "3"},
		"-3":        {word: "-3"},
	} {
		got, err := parsePlug(s)
		if err != nil || got.word != want.word || got.named != want.named || got.expect != want.expect || !slices.Equal(got.number, want.number) {
			t.Errorf("%q is %+v, %v", s, got, err)
		}
	}
}
