package exec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// TestValidate: each wrong key is named, and Open refuses what Validate refuses. No program is looked for.
func TestValidate(t *testing.T) {
	option := func(name, value string) func(*Options) {
		return func(o *Options) { o.Options[name] = value }
	}
	secret := func(name, value string) func(*Options) {
		return func(o *Options) { o.Secrets[name] = agents.NewSecret(value) }
	}
	command := func(c string) func(*Options) { return func(o *Options) { o.Command = c } }
	for name, c := range map[string]struct {
		change func(*Options)
		keys   []string
	}{
		"right":                     {func(*Options) {}, nil},
		"not installed":             {command("fence_no_such_agent"), nil},
		"absolute":                  {command("/opt/fence/apc"), nil},
		"no options":                {func(o *Options) { o.Options, o.Secrets = nil, nil }, nil},
		"machine":                   {func(o *Options) { o.See = "machine" }, nil},
		"odd password":              {secret("password", testPassword), nil},
		"path of a secret":          {secret("password_file", "/etc/x"), nil},
		"own file":                  {option("identity_file", "/root/.ssh/id"), nil},
		"onoff":                     {option("method", "onoff"), nil},
		"no command":                {command(""), []string{"command"}},
		"relative":                  {command("bin/fence_apc"), []string{"command"}},
		"relative, dot":             {command("./fence_apc"), []string{"command"}},
		"upwards":                   {command("../fence_apc"), []string{"command"}},
		"upwards, absolute":         {command("/usr/sbin/../../tmp/fence_apc"), []string{"command"}},
		"two slashes":               {command("//usr/sbin/fence_apc"), []string{"command"}},
		"a folder":                  {command("/usr/sbin/"), []string{"command"}},
		"no fence agent":            {command("reboot"), []string{"command"}},
		"arguments":                 {command("fence_apc -v"), []string{"command"}},
		"shell":                     {command("fence_apc;reboot"), []string{"command"}},
		"line end in command":       {command("/usr/sbin/fence_apc\n"), []string{"command"}},
		"fabric":                    {command("fence_scsi"), []string{"command"}},
		"fabric, absolute":          {command("/usr/sbin/fence_scsi"), []string{"command"}},
		"dummy":                     {command("fence_dummy"), []string{"command"}},
		"person":                    {command("fence_ack_manual"), []string{"command"}},
		"action":                    {option("action", "reboot"), []string{"options.action"}},
		"option":                    {option("option", "reboot"), []string{"options.option"}},
		"plug":                      {option("plug", "7"), []string{"options.plug"}},
		"port":                      {option("port", "7"), []string{"options.port"}},
		"port, upper case":          {option("Port", "7"), []string{"options.Port"}},
		"cycle":                     {option("method", "cycle"), []string{"options.method"}},
		"verbose":                   {option("verbose", "1"), []string{"options.verbose"}},
		"verbose level":             {option("verbose-level", "2"), []string{"options.verbose-level"}},
		"debug file":                {option("debug_file", "/tmp/x"), []string{"options.debug_file"}},
		"missing is off":            {option("missing_as_off", "1"), []string{"options.missing_as_off"}},
		"missing is off, as secret": {secret("missing-as-off", "1"), []string{"options.missing-as-off"}},
		"version":                   {option("version", "1"), []string{"options.version"}},
		"help":                      {option("help", "1"), []string{"options.help"}},
		"line end":                  {option("ip", "a\naction=on"), []string{"options.ip"}},
		"carriage return":           {option("ip", "a\raction=on"), []string{"options.ip"}},
		"line end in a secret":      {secret("password", "hunter2secret\naction=on"), []string{"options.password"}},
		"NUL in a secret":           {secret("password", "hunter2secret\x00"), []string{"options.password"}},
		"name with =":               {option("ip=a", "b"), []string{"options.ip=a"}},
		"name with a line end":      {option("ip\naction", "on"), []string{"options.ip\naction"}},
		"no name":                   {option("", "x"), []string{"options."}},
		"twice":                     {func(o *Options) { o.Options["power-wait"], o.Options["power_wait"] = "1", "2" }, []string{"options.power_wait"}},
		"sees":                      {func(o *Options) { o.See = "both" }, []string{"sees"}},
		"many at once":              {func(o *Options) { *o = Options{Options: map[string]string{"plug": "7"}} }, []string{"command", "sees", "options.plug"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Kind().Options().(*Options)
			o.Command = "fence_apc"
			o.Options = map[string]string{"ip": "10.9.0.60"}
			o.Secrets = map[string]agents.Secret{"password": agents.NewSecret("hunter2secret")}
			c.change(o)
			err := o.Validate()
			if got := keysOf(err); !slices.Equal(got, c.keys) {
				t.Errorf("complains about %v, want %v: %v", got, c.keys, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2secret") {
				t.Errorf("shows a secret: %v", err)
			}
			if _, openErr := o.Open(nil); (openErr == nil) != (err == nil) {
				t.Errorf("Open: %v", openErr)
			}
			if s := fmt.Sprintf("%+v %#v %v", o, o, *o); strings.Contains(s, "hunter2secret") {
				t.Errorf("printed options show the password: %s", s)
			}
		})
	}
}

// Only the operator knows whom a fence agent sees; a feed is the more careful answer.
func TestSees(t *testing.T) {
	o := Kind().Options().(*Options)
	if o.Sees() != agents.SeesFeed {
		t.Error("by itself it sees a machine")
	}
	o.See = "machine"
	if o.Sees() != agents.SeesMachine {
		t.Error("told to see a machine, it sees a feed")
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"password": true, "passwd": true, "snmp_priv_passwd": true, "snmp-priv-passwd": true, "community": true, "hexadecimal_kg": true,
		"apikey": true, "secret_key": true, "access_key": true, "token": true, "Password": true,
		"password_script": false, "passwd_script": false, "identity_file": false, "ip": false, "username": false, "key_value": false, "pkg": false, "tlskey": false,
	} {
		if isSecret(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
