package exec

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

func TestDescribe(t *testing.T) {
	needAgents(t)
	d, err := Kind().Describe(within(t, 20*time.Second), "fence_apc_snmp")
	if err != nil {
		t.Fatal(err)
	}
	option := func(name string) agents.DescribedOption {
		i := slices.IndexFunc(d.Options, func(o agents.DescribedOption) bool { return o.Name == name })
		if i < 0 {
			t.Errorf("%s is not described", name)
			return agents.DescribedOption{}
		}
		return d.Options[i]
	}
	if d.Program != "fence_apc_snmp" || !strings.Contains(d.Doc, "APC") {
		t.Errorf("%+v", d)
	}
	if o := option("ip"); !o.Required || o.Type != "string" || o.Doc == "" || o.Set {
		t.Errorf("%+v", o)
	}
	if o := option("ipport"); o.Type != "number" || o.Default != "161" {
		t.Errorf("%+v", o)
	}
	if o := option("community"); o.Type != "secret" {
		t.Errorf("%+v", o)
	}
	if o := option("snmp_priv_passwd"); o.Type != "secret" {
		t.Errorf("%+v", o)
	}
	if o := option("snmp_version"); o.Type != "one of" || !slices.Contains(o.Choices, "2c") {
		t.Errorf("%+v", o)
	}
	for _, name := range []string{"action", "plug"} {
		if o := option(name); !o.Set || o.Default != "" {
			t.Errorf("%+v", o)
		}
	}
	for _, o := range d.Options {
		if o.Name == "verbose" || o.Name == "ipaddr" || o.Name == "debug_file" {
			t.Errorf("%s is described", o.Name)
		}
	}
	notes := strings.Join(d.Notes, "\n")
	for _, want := range []string{"own agent snmp", "plug is filled in", "power_timeout", "ipaddr (ip)", "verbose"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note on %q: %s", want, notes)
		}
	}
	for _, want := range []string{"command = \"fence_apc_snmp\"", "ip = ", "community_file = ", "plugs = "} {
		if !strings.Contains(d.Example, want) {
			t.Errorf("no %q in %s", want, d.Example)
		}
	}
}

func TestDescribeUnfit(t *testing.T) {
	needAgents(t)
	for name, word := range map[string]string{
		"fence_scsi": "hamgr refuses it: fence_scsi cuts off storage", "fence_brocade": "unfencing", "fence_ovh": `no action "status"`,
	} {
		d, err := Kind().Describe(within(t, 20*time.Second), name)
		if err != nil || len(d.Notes) == 0 || !strings.Contains(d.Notes[0], word) {
			t.Errorf("%s: %v %v", name, d.Notes, err)
		}
	}
	for _, name := range []string{"", "fence_no_such_agent", "reboot", "../fence_apc", "/bin/true -x", "fence_ack_manual"} {
		if d, err := Kind().Describe(within(t, 20*time.Second), name); !errors.Is(err, agents.ErrUnfit) && name != "fence_ack_manual" || err == nil {
			t.Errorf("%q: %+v, %v", name, d, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Kind().Describe(ctx, script(t, "").path); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled one: %v", err)
	}
}

func TestPrograms(t *testing.T) {
	needAgents(t)
	names := Kind().Programs()
	if !slices.Contains(names, "fence_apc_snmp") || slices.Contains(names, "fence_scsi") || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%v", names)
	}
}
