package redfish

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/hamgr/hamgr/agents"
)

// keysOf lists the keys that an error of Validate complains about.
func keysOf(err error) []string {
	var keys []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			keys = append(keys, keysOf(e)...)
		}
		return keys
	}
	var k *agents.KeyError
	if errors.As(err, &k) {
		keys = append(keys, k.Key)
	}
	return keys
}

// TestExample: the example is a table that can be pasted, with every key known and right.
func TestExample(t *testing.T) {
	var file struct {
		Devices []struct {
			Name, Agent  string
			PasswordFile string `toml:"password_file"`
			Options
		} `toml:"fence_device"`
	}
	meta, err := toml.Decode(Kind().Example, &file)
	if err != nil || len(meta.Undecoded()) > 0 || len(file.Devices) != 1 {
		t.Fatalf("%v, unknown keys %v", err, meta.Undecoded())
	}
	d := file.Devices[0]
	if d.Agent != Kind().Name || d.Name == "" || d.PasswordFile == "" {
		t.Errorf("incomplete: %+v", d)
	}
	d.Password, d.Auth = agents.NewSecret("x"), AuthBasic
	if err := d.Options.Validate(); err != nil {
		t.Error(err)
	}
}

// TestValidate: each wrong key is named, and Open refuses what Validate refuses.
func TestValidate(t *testing.T) {
	pem := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(pem, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	pin := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		change func(*Options)
		keys   []string
	}{
		"right":                   {func(o *Options) {}, nil},
		"host only":               {func(o *Options) { o.Address = "bmc-1.example" }, nil},
		"host and port":           {func(o *Options) { o.Address = "10.9.0.12:8443" }, nil},
		"IPv6":                    {func(o *Options) { o.Address = "fd00::12" }, nil},
		"IPv6 and port":           {func(o *Options) { o.Address = "[fd00::12]:443" }, nil},
		"trailing slash":          {func(o *Options) { o.Address = "https://10.9.0.12/" }, nil},
		"session":                 {func(o *Options) { o.Auth = AuthSession }, nil},
		"system by URI":           {func(o *Options) { o.System = "/redfish/v1/Systems/System.Embedded.1" }, nil},
		"system by ID":            {func(o *Options) { o.System = "System.Embedded.1" }, nil},
		"pin":                     {func(o *Options) { o.PinSHA256 = pin }, nil},
		"pin as openssl prints":   {func(o *Options) { o.PinSHA256 = strings.Repeat("AB:", 31) + "AB" }, nil},
		"insecure":                {func(o *Options) { o.Insecure = true }, nil},
		"http, insecure":          {func(o *Options) { o.Address, o.Insecure = "http://10.9.0.12", true }, nil},
		"odd password":            {func(o *Options) { o.Password = agents.NewSecret(testPassword) }, nil},
		"password in Latin-1":     {func(o *Options) { o.Password = agents.NewSecret("caf\xe9-latin1") }, nil},
		"no address":              {func(o *Options) { o.Address = "" }, []string{"address"}},
		"http":                    {func(o *Options) { o.Address = "http://10.9.0.12" }, []string{"address"}},
		"other scheme":            {func(o *Options) { o.Address = "ftp://10.9.0.12" }, []string{"address"}},
		"path":                    {func(o *Options) { o.Address = "https://10.9.0.12/redfish/v1" }, []string{"address"}},
		"query":                   {func(o *Options) { o.Address = "https://10.9.0.12?x=1" }, []string{"address"}},
		"credentials in address":  {func(o *Options) { o.Address = "https://u:hunter2secret@10.9.0.12" }, []string{"address"}},
		"broken escape":           {func(o *Options) { o.Address = "https://u:hunter2secret%zz@10.9.0.12" }, []string{"address"}},
		"port too high":           {func(o *Options) { o.Address = "10.9.0.12:70000" }, []string{"address"}},
		"no user":                 {func(o *Options) { o.Username = "" }, []string{"username"}},
		"colon, basic":            {func(o *Options) { o.Username = "a:b" }, []string{"username"}},
		"colon, session":          {func(o *Options) { o.Username, o.Auth = "a:b", AuthSession }, nil},
		"line end in user":        {func(o *Options) { o.Username = "fencer\n" }, []string{"username"}},
		"no password":             {func(o *Options) { o.Password = agents.Secret{} }, []string{"password"}},
		"line end in password":    {func(o *Options) { o.Password = agents.NewSecret("hunter2secret\r") }, []string{"password"}},
		"Latin-1, session":        {func(o *Options) { o.Password, o.Auth = agents.NewSecret("caf\xe9"), AuthSession }, []string{"password"}},
		"unknown auth":            {func(o *Options) { o.Auth = "digest" }, []string{"auth"}},
		"system elsewhere":        {func(o *Options) { o.System = "https://10.9.0.13/redfish/v1/Systems/1" }, []string{"system"}},
		"system, two slashes":     {func(o *Options) { o.System = "//10.9.0.13/redfish/v1/Systems/1" }, []string{"system"}},
		"system, relative":        {func(o *Options) { o.System = "redfish/v1/Systems/1" }, []string{"system"}},
		"pin too short":           {func(o *Options) { o.PinSHA256 = pin[2:] }, []string{"pin_sha256"}},
		"pin not hex":             {func(o *Options) { o.PinSHA256 = "x" + pin[1:] }, []string{"pin_sha256"}},
		"pin and insecure":        {func(o *Options) { o.PinSHA256, o.Insecure = pin, true }, []string{"insecure"}},
		"pin and name":            {func(o *Options) { o.PinSHA256, o.ServerName = pin, "bmc" }, []string{"server_name"}},
		"no such CA":              {func(o *Options) { o.CAFile = pem + "x" }, []string{"ca_file"}},
		"CA without certificate":  {func(o *Options) { o.CAFile = pem }, []string{"ca_file"}},
		"pin, CA and insecure":    {func(o *Options) { o.PinSHA256, o.CAFile, o.Insecure = pin, pem, true }, []string{"pin_sha256", "ca_file", "insecure"}},
		"many at once":            {func(o *Options) { *o = Options{} }, []string{"address", "auth", "username", "password"}},
		"control char in system":  {func(o *Options) { o.System = "a\nb" }, []string{"system"}},
		"control char in address": {func(o *Options) { o.Address = "10.9.0.12\n" }, []string{"address"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Kind().Options().(*Options)
			o.Address, o.Username, o.Password = "https://10.9.0.12", "fencer", agents.NewSecret("hunter2secret")
			c.change(o)
			err := o.Validate()
			if got := keysOf(err); !slices.Equal(got, c.keys) {
				t.Errorf("complains about %v, want %v: %v", got, c.keys, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2secret") {
				t.Errorf("shows a secret: %v", err)
			}
			a, openErr := o.Open(nil)
			if (openErr == nil) != (err == nil) {
				t.Errorf("Open: %v", openErr)
			}
			if a != nil {
				if s := fmt.Sprintf("%+v %#v", o, o); strings.Contains(s, "hunter2secret") || strings.Contains(s, "latin1") {
					t.Errorf("printed options show the password: %s", s)
				}
			}
		})
	}
}

// TestReference: what may stand in a document, and where it leads.
func TestReference(t *testing.T) {
	base, errs := parseAddress("https://10.9.0.12", false)
	if errs != nil {
		t.Fatal(errs)
	}
	for ref, want := range map[string]string{
		"/redfish/v1/Systems/1":                  "/redfish/v1/Systems/1",
		"/redfish/v1/Systems/a%2Fb?x=1":          "/redfish/v1/Systems/a%2Fb?x=1",
		"/redfish/../x/./y":                      "/x/y",
		"https://10.9.0.12/redfish/v1":           "/redfish/v1",
		"https://10.9.0.12:443/redfish/v1":       "/redfish/v1",
		"http://10.9.0.12/redfish/v1":            "",
		"https://10.9.0.12:444/redfish/v1":       "",
		"https://10.9.0.13/redfish/v1":           "",
		"https://10.9.0.12@10.9.0.13/redfish/v1": "",
		"https://u:p@10.9.0.12/redfish/v1":       "",
		"//10.9.0.13/redfish/v1":                 "",
		"@10.9.0.13/":                            "",
		".example/":                              "",
		":1@x/":                                  "",
		"":                                       "",
		"#x":                                     "",
		"mailto:x":                               "",
		"/a\r\nHost: x":                          "",
		"/%zz":                                   "",
	} {
		got, err := base.reference(ref)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q leads to %q, %v, want %q", ref, got, err, want)
		}
	}
}
