package address

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*Options)
		key    string // empty: nothing is wrong
		words  string
	}{
		{func(*Options) {}, "", ""},
		{func(o *Options) { o.Address = "fd00::1/64" }, "", ""},
		{func(o *Options) { o.Address = "10.0.0.1/32" }, "", ""},
		{func(o *Options) { o.Address = "fd00::1/128" }, "", ""},
		{func(o *Options) { o.Address = "10.0.0.0/31" }, "", ""},
		{func(o *Options) { o.Address = "10.0.0.0/32" }, "", ""},
		{func(o *Options) { o.Address = "fe80::1/64"; o.Interface = "eth0.7" }, "", ""},
		{func(o *Options) { o.Announce = 0 }, "", ""},
		{func(o *Options) { o.OnLinkDown = "ignore" }, "", ""},
		{func(o *Options) { o.Address = "" }, "address", "no address"},
		{func(o *Options) { o.Address = "10.0.0.1" }, "address", `write that of its network, as in "10.0.0.1/24", or "10.0.0.1/32"`},
		{func(o *Options) { o.Address = "fd00::1" }, "address", `"fd00::1/64", or "fd00::1/128"`},
		{func(o *Options) { o.Address = "fe80::1%eth0" }, "address", `write "fe80::1/64" here, and interface = "eth0"`},
		{func(o *Options) { o.Address = "fe80::1%eth0/10" }, "address", `write "fe80::1/10" here`},
		{func(o *Options) { o.Address = "10.0.0.1/33" }, "address", "no address with a prefix length"},
		{func(o *Options) { o.Address = "10.0.0.1/024" }, "address", "no address with a prefix length"},
		{func(o *Options) { o.Address = "10.0.0/24" }, "address", "no address with a prefix length"},
		{func(o *Options) { o.Address = "web.example/24" }, "address", "no address with a prefix length"},
		{func(o *Options) { o.Address = "::ffff:10.0.0.1/120" }, "address", `write "10.0.0.1"`},
		{func(o *Options) { o.Address = "10.0.0.0/24" }, "address", "is the network"},
		{func(o *Options) { o.Address = "10.0.0.255/24" }, "address", "broadcast address of 10.0.0.0/24"},
		{func(o *Options) { o.Address = "10.0.0.1/0" }, "address", "every address"},
		{func(o *Options) { o.Address = "127.0.0.5/8" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "0.0.0.0/8" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "224.0.0.1/8" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "255.255.255.255/32" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "ff02::1/64" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "::1/128" }, "address", "cannot belong"},
		{func(o *Options) { o.Address = "fe80::1/64" }, "interface", "link-local"},
		{func(o *Options) { o.Interface = "a/b" }, "interface", "no name"},
		{func(o *Options) { o.Interface = "eth0:1" }, "interface", "no name"},
		{func(o *Options) { o.Interface = "sixteen-letters-" }, "interface", "no name"},
		{func(o *Options) { o.Interface = ".." }, "interface", "no name"},
		{func(o *Options) { o.Interface = "eth 0" }, "interface", "no name"},
		{func(o *Options) { o.Interface = "eth\x00" }, "interface", "no name"},
		{func(o *Options) { o.DuplicateTimeout = 0 }, "duplicate_timeout", "write 10ms to 10s"},
		{func(o *Options) { o.DuplicateTimeout = time.Minute }, "duplicate_timeout", "out of range"},
		{func(o *Options) { o.Announce = -1 }, "announce", "out of range"},
		{func(o *Options) { o.Announce = time.Hour }, "announce", "out of range"},
		{func(o *Options) { o.OnLinkDown = "panic" }, "on_link_down", `write "fail" or "ignore"`},
	} {
		o := Kind().Options().(*Options)
		o.Address = "10.0.0.100/24"
		test.change(o)
		err := o.Validate()
		var key *resources.KeyError
		switch {
		case test.key == "" && err != nil:
			t.Errorf("%+v: %v", o, err)
		case test.key != "" && (!errors.As(err, &key) || key.Key != test.key || !strings.Contains(err.Error(), test.words)):
			t.Errorf("%+v: %v, want %s with %q", o, err, test.key, test.words)
		}
	}
}

// The example is one that works, and the one that is explained; so is every key.
func TestExample(t *testing.T) {
	var file struct {
		Group []struct {
			Resource []map[string]any `toml:"resource"`
		} `toml:"group"`
	}
	if _, err := toml.Decode("[[group]]\n"+Kind().Example, &file); err != nil {
		t.Fatal(err)
	}
	keys := file.Group[0].Resource[0]
	if keys["kind"] != Kind().Name {
		t.Errorf("example of %v", keys["kind"])
	}
	o := Kind().Options().(*Options)
	o.Address, _ = keys["address"].(string)
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), Kind().Example) {
		t.Error("the README has another example")
	}
	options := reflect.TypeFor[Options]()
	for i := range options.NumField() {
		if key := options.Field(i).Tag.Get("toml"); !strings.Contains(string(readme), "\n| `"+key+"` |") {
			t.Errorf("the README does not explain %s", key)
		}
	}
}
