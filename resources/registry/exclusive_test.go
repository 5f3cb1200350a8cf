package registry

import (
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/hamgr/hamgr/resources"
)

// TestExclusive: what two groups may not both have, and what they may.
func TestExclusive(t *testing.T) {
	kinds := Default()
	read := func(kind, keys string) resources.Options {
		o := kinds[kind].Options()
		if _, err := toml.Decode(keys, o); err != nil {
			t.Fatalf("%s: %v", keys, err)
		}
		if err := o.Validate(); err != nil {
			t.Fatalf("%s: %v", keys, err)
		}
		return o
	}
	const (
		disk  = "device = '/dev/disk/by-id/wwn-1'\nmountpoint = '/srv'\nfstype = 'ext4'\n"
		agent = "agent = 'ocf:heartbeat:Filesystem'\nparams = { device = '/dev/sda', directory = '/srv' }\n"
	)
	for _, c := range []struct {
		kind, a, b string
		same       bool
	}{
		{"address", "address = '10.0.0.9/24'", "address = '10.0.0.9/32'\ninterface = 'eth1'", true},
		{"address", "address = 'fd00::9/64'", "address = 'fd00:0::9/64'", true},
		{"address", "address = '10.0.0.9/24'", "address = '10.0.0.8/24'", false},
		{"address", "address = 'fe80::9/64'\ninterface = 'eth0'", "address = 'fe80::9/64'\ninterface = 'eth1'", false},
		{"filesystem", disk, "device = '/dev/disk/by-id//wwn-1'\nmountpoint = '/mnt'\nfstype = 'xfs'\noptions = ['ro']", true},
		{"filesystem", disk, "device = '/dev/disk/by-id/wwn-2'\nmountpoint = '/srv'\nfstype = 'ext4'", false},
		{"filesystem", "device = 'UUID=\"1-2\"'\nmountpoint = '/srv'\nfstype = 'ext4'", "device = 'UUID=1-2'\nmountpoint = '/mnt'\nfstype = 'ext4'", true},
		{"filesystem", "device = 'UUID=1-2'\nmountpoint = '/srv'\nfstype = 'ext4'", "device = 'LABEL=1-2'\nmountpoint = '/srv'\nfstype = 'ext4'", false},
		{"filesystem", "device = 'nas:/x'\nmountpoint = '/srv'\nfstype = 'nfs4'", "device = 'nas:/x'\nmountpoint = '/mnt'\nfstype = 'nfs4'", false},
		{"filesystem", "device = '/a'\nmountpoint = '/srv'\nfstype = 'none'\noptions = ['bind']", "device = '/a'\nmountpoint = '/mnt'\nfstype = 'none'\noptions = ['bind']", false},
		{"filesystem", "device = 'tmpfs'\nmountpoint = '/srv'\nfstype = 'tmpfs'", "device = 'tmpfs'\nmountpoint = '/mnt'\nfstype = 'tmpfs'", false},
		{"lvm", "volume_group = 'vg'", "volume_group = 'vg'\nmode = 'plain'", true},
		{"lvm", "volume_group = 'vg'", "volume_group = 'vg2'", false},
		{"systemd", "unit = 'db.service'", "unit = 'db.service'\nready_after = 1000000000", true},
		{"systemd", "unit = 'db@1.service'", "unit = 'db@2.service'", false},
		{"command", "run = ['/bin/a', 'b']", "run = ['/bin/a', 'b']\nuser = 'www-data'", true},
		{"command", "run = ['/bin/a', 'b']", "run = ['/bin/a b']", false},
		{"command", "run = ['/bin/a']", "run = ['/bin/a']\nenvironment = { DISK = '2' }", false},
		{"command", "run = ['/bin/a']", "run = ['/bin/a']\nshared = true", false},
		{"command", "start = ['/bin/a']\nstop = ['/bin/b']", "start = ['/bin/a']\nstop = ['/bin/c']", true},
		{"ocf", agent, "agent = 'heartbeat:Filesystem'\nparams = { directory = '/srv', device = '/dev/sda' }", true},
		{"ocf", agent, "agent = 'ocf:heartbeat:Filesystem'\nparams = { device = '/dev/sdb', directory = '/srv' }", false},
		{"ocf", agent, agent + "shared = true", false},
	} {
		key, what := read(c.kind, c.a).Exclusive()
		other, thing := read(c.kind, c.b).Exclusive()
		if same := what != "" && key == other && what == thing; same != c.same {
			t.Errorf("%s: %s and %s: the same %v, by %q %q and %q %q", c.kind, c.a, c.b, same, key, what, other, thing)
		}
	}
}
