package ipmi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/hamgr/hamgr/agents"
)

func TestOptions(t *testing.T) {
	secret := agents.NewSecret
	long := strings.Repeat("x", 21)
	for name, c := range map[string]struct {
		change func(*Options)
		key    string // that is wrong; empty: none
	}{
		"right":                {func(o *Options) {}, ""},
		"name":                 {func(o *Options) { o.Address = "bmc1.example.org" }, ""},
		"name and port":        {func(o *Options) { o.Address = "bmc1.example.org:6230" }, ""},
		"IPv6":                 {func(o *Options) { o.Address = "fd00::11" }, ""},
		"IPv6, brackets":       {func(o *Options) { o.Address = "[fd00::11]" }, ""},
		"IPv6 and port":        {func(o *Options) { o.Address = "[fd00::11]:6230" }, ""},
		"port":                 {func(o *Options) { o.Port = 6230 }, ""},
		"same port twice":      {func(o *Options) { o.Address, o.Port = "h:6230", 6230 }, ""},
		"20 bytes of password": {func(o *Options) { o.Password = secret("\xff\x00 \n'\"$" + strings.Repeat("é", 6)) }, ""},
		"16 bytes of username": {func(o *Options) { o.Username = "0123456789abcdef" }, ""},
		"BMC key":              {func(o *Options) { o.BMCKey = secret("0123456789abcdefghij") }, ""},
		"BMC key in hex":       {func(o *Options) { o.BMCKey = secret("0x" + strings.Repeat("0aF0", 10)) }, ""},
		"suite 3":              {func(o *Options) { o.CipherSuite = 3 }, ""},
		"administrator":        {func(o *Options) { o.Privilege = "administrator" }, ""},

		"no address":           {func(o *Options) { o.Address = "" }, "address"},
		"URL":                  {func(o *Options) { o.Address = "https://10.9.0.11" }, "address"},
		"blank":                {func(o *Options) { o.Address = "10.9.0.11 " }, "address"},
		"path":                 {func(o *Options) { o.Address = "bmc/x" }, "address"},
		"user":                 {func(o *Options) { o.Address = "root@bmc" }, "address"},
		"port 0":               {func(o *Options) { o.Address = "h:0" }, "address"},
		"port beyond":          {func(o *Options) { o.Address = "h:65536" }, "address"},
		"port of words":        {func(o *Options) { o.Address = "h:ipmi" }, "address"},
		"no host":              {func(o *Options) { o.Address = ":623" }, "address"},
		"two ports":            {func(o *Options) { o.Address, o.Port = "h:6230", 6231 }, "port"},
		"port key beyond":      {func(o *Options) { o.Port = 70000 }, "port"},
		"port key 0":           {func(o *Options) { o.Port = 0 }, "port"},
		"no username":          {func(o *Options) { o.Username = "" }, "username"},
		"17 bytes of username": {func(o *Options) { o.Username = "0123456789abcdefg" }, "username"},
		"control character":    {func(o *Options) { o.Username = "a\nb" }, "username"},
		"no password":          {func(o *Options) { o.Password = agents.Secret{} }, "password"},
		"21 bytes of password": {func(o *Options) { o.Password = secret(long) }, "password"},
		"11 letters, 22 bytes": {func(o *Options) { o.Password = secret(strings.Repeat("é", 11)) }, "password"},
		"long BMC key":         {func(o *Options) { o.BMCKey = secret(long) }, "bmc_key"},
		"long hex":             {func(o *Options) { o.BMCKey = secret("0x" + strings.Repeat("ab", 21)) }, "bmc_key"},
		"odd hex":              {func(o *Options) { o.BMCKey = secret("0x123") }, "bmc_key"},
		"no hex":               {func(o *Options) { o.BMCKey = secret("0xgg") }, "bmc_key"},
		"zeros":                {func(o *Options) { o.BMCKey = secret("0x" + strings.Repeat("0", 40)) }, "bmc_key"},
		"suite 0":              {func(o *Options) { o.CipherSuite = 1 }, "cipher_suite"},
		"user privilege":       {func(o *Options) { o.Privilege = "user" }, "privilege"},
		"unknown privilege":    {func(o *Options) { o.Privilege = "root" }, "privilege"},
		"no privilege":         {func(o *Options) { o.Privilege = "" }, "privilege"},
	} {
		o := options("10.9.0.11")
		c.change(o)
		err := o.Validate()
		var wrong *agents.KeyError
		if errors.As(err, &wrong) != (c.key != "") || wrong != nil && wrong.Key != c.key {
			t.Errorf("%s: %v, want the key %q", name, err, c.key)
		}
		if _, openErr := o.Open(nil); (openErr == nil) != (err == nil) {
			t.Errorf("%s: open says %v, validate %v", name, openErr, err)
		}
		for _, s := range []agents.Secret{o.Password, o.BMCKey} {
			if said := fmt.Sprintf("%v %+v %#v", err, err, o); !s.IsZero() && strings.Contains(said, s.Reveal()) {
				t.Errorf("%s: a secret is said: %s", name, said)
			}
		}
	}
}

// TestDefaults: what a file that says little gets.
func TestDefaults(t *testing.T) {
	h, err := options("fd00::11").Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := h.(*agent); a.target.address != "[fd00::11]:623" || len(a.suites) != 2 || a.suites[0].id != 17 || a.target.keyed || a.target.level != 3 {
		t.Errorf("%+v, %v", a.target, a.suites)
	}
	if (&Options{}).Sees() != agents.SeesMachine {
		t.Error("a BMC sees the machine")
	}
}

// TestExample: the example has known keys only, and lacks nothing but the password's file.
func TestExample(t *testing.T) {
	var file struct {
		Device []map[string]any `toml:"fence_device"`
	}
	if _, err := toml.Decode(Kind().Example, &file); err != nil || len(file.Device) != 1 {
		t.Fatal(err, file)
	}
	o := Kind().Options().(*Options)
	for key, value := range file.Device[0] {
		switch key {
		case "name", "agent":
		case "password_file":
			o.Password = agents.NewSecret("secret")
		default:
			text := fmt.Sprintf("%s = %q", key, value)
			if meta, err := toml.Decode(text, o); err != nil || len(meta.Undecoded()) > 0 {
				t.Errorf("%s: %v, %v", text, err, meta.Undecoded())
			}
		}
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

// TestReadme holds the README to the sections that each agent has, and its table to the keys.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, documented []string
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, strings.TrimSpace(s))
		}
		if s, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ := strings.Cut(s, "`")
			documented = append(documented, key)
		}
	}
	if want := []string{"What it drives", "Keys", "How off is known", "Tested against", "Limits"}; !slices.Equal(sections, want) {
		t.Errorf("sections %q, want %q", sections, want)
	}
	var keys []string
	for f := range reflect.TypeFor[Options]().Fields() {
		keys = append(keys, f.Tag.Get("toml"))
	}
	if !slices.Equal(documented, keys) {
		t.Errorf("keys %q in the table, %q in the code", documented, keys)
	}
}

// FuzzOptions: what is written for an address or a key is refused, or makes a handle.
func FuzzOptions(f *testing.F) {
	f.Add("[fd00::11]:623", "0x00ff")
	f.Add("bmc:", "key")
	f.Add("]:1", "0x")
	f.Fuzz(func(t *testing.T, address, key string) {
		o := options(address)
		o.BMCKey = agents.NewSecret(key)
		err := o.Validate()
		h, openErr := o.Open(nil)
		if (err == nil) != (openErr == nil) {
			t.Fatalf("validate says %v, open %v", err, openErr)
		}
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(h.(*agent).target.address)
		if n, convErr := strconv.Atoi(port); err != nil || host == "" || convErr != nil || n < 1 || n > 65535 {
			t.Errorf("%q became %q", address, h.(*agent).target.address)
		}
	})
}
