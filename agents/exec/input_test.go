package exec

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

func testMeta(t testing.TB) *metadata {
	t.Helper()
	m, err := parseMetadata([]byte(testMetadata))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What the agent would not understand is refused before it is run, with the name that was meant.
func TestSettings(t *testing.T) {
	m := testMeta(t)
	for name, c := range map[string]struct {
		options map[string]string
		secrets map[string]string
		want    string   // name=value, sorted by the names that were written
		words   []string // of the error
	}{
		"right":             {map[string]string{"ip": "a", "ssl": "Yes", "ipport": "6230"}, nil, "ip=a ipport=6230 ssl=Yes", nil},
		"an old name":       {map[string]string{"ipaddr": "a"}, nil, "ipaddr=a", nil},
		"hyphens":           {map[string]string{"ip": "a", "power-timeout": "3"}, nil, "ip=a power_timeout=3", nil},
		"a secret":          {map[string]string{"ip": "a"}, map[string]string{"password": "x"}, "ip=a password=x", nil},
		"an old secret":     {map[string]string{"ip": "a"}, map[string]string{"passwd": "x"}, "ip=a passwd=x", nil},
		"a file of its own": {map[string]string{"ip": "a"}, map[string]string{"token": "text", "token_file": "/etc/token"}, "ip=a token_file=/etc/token", nil},
		"missing":           {nil, nil, "", []string{"options.ip is missing: Address"}},
		"misspelled":        {map[string]string{"ip": "a", "ipprot": "1"}, nil, "", []string{`options.ipprot: unknown option; did you mean "ipport"?`}},
		"unknown":           {map[string]string{"ip": "a", "community": "x"}, nil, "", []string{"options.community: unknown option; all of them: hamgr agent describe exec:fence_test"}},
		"unknown secret":    {map[string]string{"ip": "a"}, map[string]string{"snmp_priv_passwd": "hunter2"}, "", []string{"options.snmp_priv_passwd: unknown option"}},
		"two names of one":  {map[string]string{"ip": "a", "ipaddr": "b"}, nil, "", []string{"options.ipaddr: ip is given too"}},
		"not a number":      {map[string]string{"ip": "a", "ipport": "x"}, nil, "", []string{`options.ipport: "x" is not a whole number`}},
		"not seconds":       {map[string]string{"ip": "a", "power_wait": "-1"}, nil, "", []string{`options.power_wait: "-1" is not a number of seconds`}},
		"not seconds, unit": {map[string]string{"ip": "a", "power_wait": "2s"}, nil, "", []string{"is not a number of seconds"}},
		"not true or false": {map[string]string{"ip": "a", "ssl": ""}, nil, "", []string{`options.ssl: "" is not "true" or "false"`}},
		"none of several":   {map[string]string{"ip": "a", "method": "Onoff"}, nil, "", []string{`options.method: "Onoff" is not one of "onoff", "cycle"`}},
		"several at once":   {map[string]string{"ssl": "x", "y": "z"}, nil, "", []string{"options.ssl:", "options.y:", "options.ip is missing"}},
	} {
		o := &Options{Options: c.options, Secrets: map[string]agents.Secret{}}
		for name, s := range c.secrets {
			o.Secrets[name] = agents.NewSecret(s)
		}
		list, err := o.settings(m)
		if c.words != nil {
			if miss := errWith(err, agents.ErrUnfit, c.words...); miss != "" {
				t.Errorf("%s: %s", name, miss)
			} else if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: a secret is shown: %v", name, err)
			}
			continue
		}
		var got []string
		for _, s := range list {
			got = append(got, s.name+"="+s.value)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestCheckPlug(t *testing.T) {
	single := strings.NewReplacer(`name="plug" unique="0" required="1"`, `name="plug" unique="0" required="0"`,
		`name="ssl"`, `name="port_as_ip"`).Replace(testMetadata)
	none := strings.NewReplacer(`name="plug"`, `name="nodename"`, `name="port"`, `name="ports"`).Replace(testMetadata)
	for _, c := range []struct {
		name, metadata, plug string
		settings             []setting
		word                 string // of the error; empty: right
	}{
		{"right", testMetadata, "7", nil, ""},
		{"blank inside", testMetadata, "blade 7", nil, ""},
		{"missing", testMetadata, "", nil, `write plugs = { NODE = ["PLUG"] }`},
		{"two in one", testMetadata, "7,8", nil, `separated by ","`},
		{"other separator", testMetadata, "7,8", []setting{{"plug_separator", ";"}}, ""},
		{"other separator, in it", testMetadata, "7;8", []setting{{"plug_separator", ";"}}, `separated by ";"`},
		{"one machine", single, "", nil, ""},
		{"one machine, a plug", single, "7", nil, "would ignore the plug"},
		{"one machine, switched off", single, "7", []setting{{"port_as_ip", "no"}}, "would ignore the plug"},
		{"one machine, the plug is its address", single, "10.9.0.60", []setting{{"port_as_ip", "Yes"}}, ""},
		{"no plug at all", none, "7", nil, "would ignore the plug"},
	} {
		m, err := parseMetadata([]byte(c.metadata))
		if err != nil {
			t.Fatal(err)
		}
		err = m.checkPlug(c.plug, c.settings)
		if c.word == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.word != "" {
			if miss := errWith(err, agents.ErrPlug, c.word); miss != "" {
				t.Errorf("%s: %s", c.name, miss)
			}
		}
	}
}

// What the file says wins over what hamgr chooses.
func TestChosen(t *testing.T) {
	m := testMeta(t)
	text := func(ctx context.Context, settings ...setting) string {
		b, err := input(ctx, m, settings, "off", "7")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got, want := text(t.Context(), setting{"ip", "a"}), "action=off\nplug=7\npower_wait=0\nmethod=onoff\nip=a\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := text(within(t, 10500*time.Millisecond), setting{"power_wait", "3"}), "action=off\nplug=7\nmethod=onoff\npower_timeout=5\npower_wait=3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := text(within(t, 10500*time.Millisecond), setting{"power_timeout", "7"}); strings.Count(got, "power_timeout") != 1 || !strings.Contains(got, "power_timeout=7\n") {
		t.Errorf("%q", got)
	}
	for d, want := range map[time.Duration]string{100 * time.Millisecond: "=1\n", time.Hour: "=20\n"} {
		if got := text(within(t, d)); !strings.Contains(got, "power_timeout"+want) {
			t.Errorf("%v: %q", d, got)
		}
	}
	for _, bad := range []string{"a\nplug=8", "a\r", "a\x00"} {
		if b, err := input(t.Context(), m, []setting{{"ip", bad}}, "off", "7"); err == nil || strings.Contains(err.Error(), "plug=8") {
			t.Errorf("%q: %q, %v", bad, b, err)
		}
		if b, err := input(t.Context(), m, nil, "off", bad); err == nil {
			t.Errorf("plug %q: %q", bad, b)
		}
	}
}

// A value arrives byte for byte behind the reader of the agents' library.
func TestValuesAreByteExact(t *testing.T) {
	t.Parallel()
	command, dir := lab(t)
	if err := os.WriteFile(dir+"/outlet-7", []byte("on"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := append([]string{` "`, `"`, `""`, `"a"`, `" a "`, "a ", "a\t", "a\u00a0", "\u2003", "a\x1f", "'a'", "#a", "=a", "a=", "a\\", `\"a\"`, "\x85", "caf\xe9 ", "-o reboot"}, oddPasswords...)
	for _, value := range values {
		o := Kind().Options().(*Options)
		o.Command = command
		o.Options = map[string]string{"ip": dir}
		o.Secrets = map[string]agents.Secret{"password": agents.NewSecret(value)}
		r, err := open(t, o).Status(within(t, 20*time.Second), "7")
		if err != nil || r.State != agents.On {
			t.Fatalf("%q: %v %v", value, r, err)
		}
		if got, _ := os.ReadFile(dir + "/password"); string(got) != value {
			t.Errorf("%q arrives as %q", value, got)
		}
	}
}
