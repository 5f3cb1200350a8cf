package config

import (
	"os"
	"reflect"
	"testing"
	"time"
)

const minimal = `
[cluster]
name = "web"
key_file = "/etc/hamgr/cluster.key"

[[node]]
name = "alpha"
addresses = ["10.0.0.11", "fd00::11"]
fencing = [["alpha-bmc"]]

[[node]]
name = "beta"
addresses = ["10.0.0.12", "fd00::12"]
fencing = [["beta-bmc"], ["pdu-a", "pdu-b"]]

[[node]]
name = "quorum1"
addresses = ["10.0.0.9"]
role = "witness"

[[fence_device]]
name = "alpha-bmc"
agent = "bmc"
address = "10.9.0.11"
username = "fencer"
password = "secret"

[[fence_device]]
name = "beta-bmc"
agent = "bmc"
address = "10.9.0.12"
username = "fencer"
password = "secret"
port = 62
verify = false
timeout = "1m"

[[fence_device]]
name = "pdu-a"
agent = "pdu"
address = "10.9.0.50"
plugs = { beta = ["4", "5"] }

[[fence_device]]
name = "pdu-b"
agent = "pdu"
address = "10.9.0.51"
plugs = { beta = ["4"] }

[[group]]
name = "db"

[[group.resource]]
name = "app"
kind = "process"
run = ["/usr/bin/app", "--foreground"]
env = { A = "1" }

[[group.resource]]
name = "data"
kind = "mount"
mountpoint = "/srv"
stop_timeout = "90s"
`

func parseOK(t *testing.T, doc string) *Config {
	t.Helper()
	cfg, err := Parse("hamgr.toml", []byte(doc), testKinds())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDefaultsAndTypes(t *testing.T) {
	cfg := parseOK(t, minimal)
	wantCluster := Cluster{
		Name: "web", KeyFile: "/etc/hamgr/cluster.key", DetectionTime: 3 * time.Second,
		Port: 7846, DataDir: "/var/lib/hamgr", FenceAction: "reboot", OnQuorumLoss: "stop",
		HealthInterval: 5 * time.Minute, RehearsalAge: 90 * 24 * time.Hour,
		StormWindow: time.Minute, QuarantineAfter: 3, QuarantineWindow: time.Hour, QuarantineTime: 10 * time.Minute,
	}
	if cfg.Cluster != wantCluster {
		t.Errorf("cluster: %+v", cfg.Cluster)
	}
	wantNodes := []Node{
		{Name: "alpha", Addresses: []string{"10.0.0.11", "fd00::11"}, Role: Member, Fencing: [][]string{{"alpha-bmc"}}, Watchdog: WatchdogOff},
		{Name: "beta", Addresses: []string{"10.0.0.12", "fd00::12"}, Role: Member, Fencing: [][]string{{"beta-bmc"}, {"pdu-a", "pdu-b"}}, Watchdog: WatchdogOff},
		{Name: "quorum1", Addresses: []string{"10.0.0.9"}, Role: Witness, Watchdog: WatchdogOff},
	}
	if !reflect.DeepEqual(cfg.Nodes, wantNodes) {
		t.Errorf("nodes: %+v", cfg.Nodes)
	}
	alpha, beta := cfg.Devices[0], cfg.Devices[1]
	if alpha.Timeout != 20*time.Second || alpha.Settle != 100*time.Millisecond || alpha.Plugs != nil || beta.Timeout != time.Minute {
		t.Errorf("devices: %+v %+v", alpha, beta)
	}
	if o := alpha.Options.(*bmcOptions); o.Address != "10.9.0.11" || o.Port != 63 || !o.Verify || o.Password.Reveal() != "secret" {
		t.Errorf("options of alpha-bmc: %+v", o)
	}
	if o := beta.Options.(*bmcOptions); o.Port != 62 || o.Verify {
		t.Errorf("options of beta-bmc: %+v", o)
	}
	group := cfg.Groups[0]
	app, data := group.Resources[0], group.Resources[1]
	if group.Restarts != 1 || group.Prefer != nil || len(group.Resources) != 2 {
		t.Errorf("group: %+v", group)
	}
	if app.StartTimeout != time.Minute || app.StopTimeout != time.Minute || app.MonitorInterval != 10*time.Second || app.MonitorTimeout != 20*time.Second {
		t.Errorf("times of app: %+v", app)
	}
	wantApp := &processOptions{Run: []string{"/usr/bin/app", "--foreground"}, Env: map[string]string{"A": "1"}, Wait: 5 * time.Second}
	if !reflect.DeepEqual(app.Options, wantApp) {
		t.Errorf("options of app: %+v", app.Options)
	}
	if o := data.Options.(*mountOptions); data.StopTimeout != 90*time.Second || o.FSType != "auto" || o.Mountpoint != "/srv" {
		t.Errorf("data: %+v %+v", data, o)
	}
}

func TestLookups(t *testing.T) {
	cfg := parseOK(t, minimal)
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("members", cfg.Members(), []string{"alpha", "beta"})
	check("voters", cfg.Voters(), []string{"alpha", "beta", "quorum1"})
	check("names", cfg.NodeNames(), []string{"alpha", "beta", "quorum1"})
	check("endpoints", cfg.Endpoints("alpha"), []string{"10.0.0.11:7846", "[fd00::11]:7846"})
	check("endpoints of nobody", cfg.Endpoints("gamma"), []string(nil))
	check("levels of alpha", cfg.Levels("alpha"), [][]PlugSet{{{cfg.Devices[0], []string{""}}}})
	check("levels of beta", cfg.Levels("beta"), [][]PlugSet{
		{{cfg.Devices[1], []string{""}}},
		{{cfg.Devices[2], []string{"4", "5"}}, {cfg.Devices[3], []string{"4"}}},
	})
	check("levels of the witness", cfg.Levels("quorum1"), [][]PlugSet(nil))
	if _, ok := cfg.Node("gamma"); ok {
		t.Error("gamma is there")
	}
	if d, ok := cfg.Device("pdu-b"); !ok || d.Name != "pdu-b" {
		t.Error("pdu-b is not there")
	}
}

// Two configurations made by one process share nothing that one could change.
func TestDefaultsAreNotShared(t *testing.T) {
	first := parseOK(t, minimal)
	first.Devices[0].Options.(*bmcOptions).Username = "changed"
	first.Nodes[0].Addresses[0] = "changed"
	second := parseOK(t, minimal)
	if second.Devices[0].Options.(*bmcOptions).Username != "fencer" || second.Nodes[0].Addresses[0] != "10.0.0.11" {
		t.Error("the second configuration has the first one's values")
	}
}

func TestLoadFile(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/hamgr.toml"
	if _, err := Load(path, testKinds()); err == nil || err.Error() != path+": cannot be read: no such file or directory; give the path of a hamgr.toml" {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(dir, testKinds()); err == nil {
		t.Error("a folder was loaded")
	}
	if err := os.WriteFile(path, make([]byte, MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, testKinds()); err == nil || err.Error() != path+": is larger than 256 KiB; give the path of a hamgr.toml" {
		t.Errorf("large file: %v", err)
	}
	if err := os.WriteFile(path, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, testKinds())
	if err != nil || cfg.Path != path || len(cfg.Warnings) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestDescribe(t *testing.T) {
	want := []KeyDoc{
		{Key: "address", Type: "string", Doc: "host of the BMC"},
		{Key: "port", Type: "number", Default: "63", Doc: "UDP port"},
		{Key: "username", Type: "string", Doc: "account"},
		{Key: "password", Type: "secret", Doc: "its password"},
		{Key: "verify", Type: "true or false", Default: "true", Doc: "check the certificate"},
	}
	if got := Describe(testKinds().Agents["bmc"].Options()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	cluster := defaultCluster
	for _, d := range Describe(&cluster) {
		if d.Key == "detection_time" && (d.Type != "duration" || d.Default != `"3s"` || d.Range != "500ms..60s") {
			t.Errorf("got %+v", d)
		}
	}
	for _, d := range DescribeDevice() {
		if d.Key == "timeout" && d.Default != `"20s"` || d.Key == "identity" && len(d.Choices) != 2 {
			t.Errorf("got %+v", d)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m1s",
		100 * time.Millisecond: "100ms", 20 * time.Second: "20s", 10 * time.Minute: "10m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

// Every key of the file itself is described, and no default is out of its range.
func TestOwnKeysAreDescribed(t *testing.T) {
	cluster, node, device, group, resource := defaultCluster, defaultNode, defaultDevice, defaultGroup, defaultResource
	for _, table := range []any{&cluster, &node, &device, &group, &resource} {
		for _, f := range fieldsOf(table) {
			if f.doc == "" {
				t.Errorf("%T: %s has no doc", table, f.key)
			}
			r := &reader{}
			if def := f.literal(); def != "" {
				root, problem := parseTOML("default", f.key+" = "+def)
				if problem != nil {
					t.Errorf("%T: default of %s: %v", table, f.key, problem)
					continue
				}
				top, _ := asTable(root, "")
				if r.set(top, f, top.keys[f.key]); len(r.problems) > 0 {
					t.Errorf("%T: default of %s: %v", table, f.key, r.problems)
				}
			}
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"address", "username", "password_file", "system", "pin_sha256", "ca_file", "timeout", "name", "fencing"}
	for word, want := range map[string]string{
		"adress": "address", "addresses": "address", "user": "username", "Username": "username", "pasword_file": "password_file",
		"password-file": "password_file", "cafile": "ca_file", "tiemout": "timeout", "fence": "fencing", "nmae": "name",
		"x": "", "": "", "colour": "", "port": "",
	} {
		if got := nearest(word, keys); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}
