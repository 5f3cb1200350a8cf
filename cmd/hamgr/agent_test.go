package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
)

var nameLine = regexp.MustCompile(`(?m)^name = ("[^"]*")$`)

// wholeFile puts a fence device into a file with the nodes that it serves.
func wholeFile(t *testing.T, device string) string {
	t.Helper()
	name := nameLine.FindStringSubmatch(device)
	if name == nil {
		t.Fatalf("no name in\n%s", device)
	}
	text := "[cluster]\nname = \"web\"\nkey_file = \"/etc/hamgr/cluster.key\"\n"
	for i, node := range []string{"alpha", "beta", "gamma"} {
		if i == 0 && !strings.Contains(device, "plugs =") || strings.Contains(device, node+" = [") {
			text += fmt.Sprintf("[[node]]\nname = %q\naddresses = [\"10.0.0.1%d\"]\nfencing = [[%s]]\n", node, i+1, name[1])
		}
	}
	return text + device
}

// The example of each agent is valid in a whole file as it stands, and so are those made for foreign programs.
func TestExamplesAreValid(t *testing.T) {
	examples := map[string]string{}
	for name, kind := range kinds().Agents {
		if kind.Example == "" {
			t.Errorf("%s has no example", name)
			continue
		}
		examples[name] = kind.Example
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, program := range []string{"fence_apc", "fence_apc_snmp", "fence_ipmilan", "fence_bladecenter", "fence_virsh", "fence_ilo2", "fence_pve", "fence_vbox"} {
		d, err := describeAgent(ctx, "exec:"+program)
		if err != nil {
			t.Errorf("%v (Debian package fence-agents)", err)
			continue
		}
		examples["exec:"+program] = d.Example
	}
	for name, example := range examples {
		cfg, err := config.Parse(name, []byte(wholeFile(t, example)), kinds())
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		if agent, _, _ := strings.Cut(name, ":"); cfg.Devices[0].Agent != agent {
			t.Errorf("the example of %s is of %s", name, cfg.Devices[0].Agent)
		}
	}
}

// Every key of every agent says what it is.
func TestAgentsAreDescribed(t *testing.T) {
	for _, a := range listAgents().Agents {
		d, err := describeAgent(t.Context(), a.Name)
		if err != nil || a.Doc == "" || len(d.Keys) < 2 || len(d.Common) < 5 {
			t.Errorf("%s: %+v, %v", a.Name, d, err)
		}
		for _, k := range append(d.Keys, d.Common...) {
			if k.Key == "" || k.Type == "" || k.Doc == "" {
				t.Errorf("%s: %+v", a.Name, k)
			}
		}
	}
}
