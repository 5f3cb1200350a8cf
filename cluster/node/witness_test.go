package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/config"
)

func TestChooseWitness(t *testing.T) {
	member := config.Node{Name: "alpha", Addresses: []string{"10.0.0.1"}, Role: config.Member}
	one := config.Node{Name: "w1", Addresses: []string{"10.0.0.8", "fd00::8"}, Role: config.Witness}
	two := config.Node{Name: "w2", Addresses: []string{"10.0.0.9"}, Role: config.Witness}
	for _, c := range []struct {
		nodes      []config.Node
		named      string
		here       []string
		want, fail string
	}{
		{nodes: []config.Node{member, one}, here: []string{"10.0.0.8"}, want: "w1"},
		{nodes: []config.Node{member, one}, here: nil, want: "w1"},                                           // behind a router that translates
		{nodes: []config.Node{member, one}, here: []string{"10.0.0.1"}, want: "w1"},                          // a member's address makes no member
		{nodes: []config.Node{member, one, two}, here: []string{"127.0.0.1", "::ffff:10.0.0.9"}, want: "w2"}, // the same address, written otherwise
		{nodes: []config.Node{member, one, two}, here: []string{"fd00::8"}, want: "w1"},
		{nodes: []config.Node{member, one, two}, here: []string{"fd00::8", "10.0.0.9"}, fail: "w1 and w2: say with --node"},
		{nodes: []config.Node{member, one, two}, here: []string{"10.9.9.9"}, fail: "none of the witnesses w1 and w2: say with --node"},
		{nodes: []config.Node{member, one, two}, named: "w2", here: []string{"10.0.0.8"}, want: "w2"},
		{nodes: []config.Node{member, one}, named: "w3", fail: `no [[node]] is named "w3"`},
		{nodes: []config.Node{member, one}, named: "alpha", fail: "a witness runs nothing: node alpha is a member"},
		{nodes: []config.Node{member}, here: []string{"10.0.0.1"}, fail: "a witness runs nothing, and no node of this file has role"},
	} {
		var here []netip.Addr
		for _, a := range c.here {
			here = append(here, netip.MustParseAddr(a).Unmap())
		}
		got, err := chooseWitness(&config.Config{Path: "web.toml", Nodes: c.nodes}, c.named, here)
		if c.fail == "" && (err != nil || got != c.want) {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
		if c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%+v: %v, want %q", c, err, c.fail)
		}
	}
}

// folderOf is a witness's folder, with its files.
type folderOf struct {
	t *testing.T
	WitnessOptions
	now chan os.Signal // has the folder looked at
}

func newFolder(t *testing.T) *folderOf {
	t.Helper()
	f := &folderOf{t: t, WitnessOptions: WitnessOptions{Log: slog.New(slog.DiscardHandler), BootID: "boot"}}
	for _, dir := range []*string{&f.Dir, &f.DataDir, &f.RunDir} {
		*dir = t.TempDir()
	}
	return f
}

// put writes the file and the key of a cluster whose witness listens on the address and port.
func (f *folderOf) put(name, cluster, address string, port int) {
	f.t.Helper()
	text := fmt.Sprintf("[cluster]\nname = %q\nkey_file = \"/nonexistent/key\"\nport = %d\n", cluster, port) +
		"[[node]]\nname = \"alpha\"\naddresses = [\"192.0.2.1\"]\nfencing = [[\"bmc\"]]\n" +
		"[[node]]\nname = \"beta\"\naddresses = [\"192.0.2.2\"]\nfencing = [[\"bmc2\"]]\n" +
		fmt.Sprintf("[[node]]\nname = \"w\"\naddresses = [%q]\nrole = \"witness\"\n", address)
	for _, bmc := range []string{"bmc", "bmc2"} {
		text += fmt.Sprintf("[[fence_device]]\nname = %[1]q\nagent = \"redfish\"\naddress = \"https://%[1]s.example.net\"\nusername = \"u\"\npassword_file = \"/nonexistent/secret\"\nca_file = \"/nonexistent/ca.pem\"\n", bmc)
	}
	f.write(name+".toml", text, 0o644)
	if _, err := os.Stat(filepath.Join(f.Dir, name+".key")); err != nil {
		f.key(name)
	}
}

func (f *folderOf) key(name string) {
	f.t.Helper()
	path := filepath.Join(f.Dir, name+".key")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	if err := NewKeyFile(path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folderOf) write(name, text string, mode os.FileMode) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folderOf) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.Dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// settled gives, by name, why a file is not served; empty if it is.
func (f *folderOf) settled(running ...string) map[string]string {
	f.t.Helper()
	all, err := f.look()
	if err != nil {
		f.t.Fatal(err)
	}
	settle(all, func(name string) bool { return strings.Contains(strings.Join(running, " "), name) })
	why := map[string]string{}
	for _, c := range all {
		why[c.name] = ""
		if c.err != nil {
			why[c.name] = c.err.Error()
		}
	}
	return why
}

func TestFolderRefuses(t *testing.T) {
	f := newFolder(t)
	f.put("web", "web", "192.0.2.3", 7846)
	f.put("copy", "web", "192.0.2.4", 7846)
	f.put("db", "db", "192.0.2.3", 7846)
	f.put("mail", "mail", "192.0.2.3", 7847)
	f.put("bad name", "bad", "192.0.2.5", 7846)
	f.put("keyless", "keyless", "192.0.2.6", 7846)
	f.remove("keyless.key")
	f.put("exposed", "exposed", "192.0.2.7", 7846)
	if err := os.Chmod(filepath.Join(f.Dir, "exposed.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.write("broken.toml", "[cluster\n", 0o644)
	f.write(".web.toml", "what an editor leaves", 0o644)
	f.write("web.toml~", "what an editor leaves", 0o644)
	f.put("twin", "twin", "192.0.2.8", 7846)
	for from, to := range map[string]string{"mail": "shared", "twin": "shared"} {
		if err := os.MkdirAll(filepath.Join(f.DataDir, to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(f.DataDir, to), filepath.Join(f.DataDir, from)); err != nil {
			t.Fatal(err)
		}
	}
	got := f.settled("web")
	for name, parts := range map[string][]string{
		"web":      nil,
		"copy":     {"web.toml and ", "copy.toml are both of cluster \"web\": remove one"},
		"db":       {"web.toml and ", "db.toml would both listen on 192.0.2.3:7846: give one cluster another port"},
		"mail":     nil,
		"bad name": {"the name of the file"},
		"keyless":  {"/nonexistent/key", "copy the cluster's key to " + filepath.Join(f.Dir, "keyless.key")},
		"exposed":  {"chmod 600"},
		"broken":   {"broken.toml"},
		"twin":     {"mail.toml and ", "twin.toml would both keep their log in ", "two folders"},
	} {
		why, there := got[name]
		if !there || (why == "") != (parts == nil) {
			t.Errorf("%s: %q", name, why)
		}
		for _, part := range parts {
			if !strings.Contains(why, part) {
				t.Errorf("%s: %q does not say %q", name, why, part)
			}
		}
	}
	if len(got) != 9 {
		t.Errorf("looked at %v", got)
	}
	// Who runs already is not disturbed by a file whose name comes before its own.
	if got := f.settled(); got["copy"] != "" || got["web"] == "" {
		t.Errorf("where nothing runs the order of the names counts: %v", got)
	}
}

// TestUnarmedNodeAsksNoDevice: what stands for a secret in a witness's configuration never reaches a device.
func TestUnarmedNodeAsksNoDevice(t *testing.T) {
	f := newFolder(t)
	f.put("web", "web", "192.0.2.3", 7846)
	c, err := config.Load(filepath.Join(f.Dir, "web.toml"), witnessKinds())
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range levels(c, "alpha", f.Log) {
		for _, d := range level {
			if a, err := d.Open(); !errors.Is(err, errUnarmed) || a != nil {
				t.Errorf("%s: opened %v, %v", d.Name, a, err)
			}
		}
	}
}
