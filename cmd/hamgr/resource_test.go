package main

import (
	"errors"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

const groupOf = `[cluster]
name = "web"
key_file = "/etc/hamgr/cluster.key"
[[node]]
name = "alpha"
addresses = ["10.0.0.11"]
fencing = [["bmc"]]
[[fence_device]]
name = "bmc"
agent = "ipmi"
address = "10.9.0.11"
username = "fencer"
password_credential = "bmc"
[[group]]
name = "db"
`

// Every kind says what it and each of its keys is, and its example is valid in a whole file as it stands; so are those made
// for foreign agents.
func TestKindsAreDescribed(t *testing.T) {
	examples := map[string]string{}
	for _, k := range listKinds().Kinds {
		d, err := describeKind(t.Context(), k.Name)
		if err != nil || k.Doc == "" || len(d.Keys) < 2 || len(d.Common) < 5 {
			t.Errorf("%s: %+v, %v", k.Name, d, err)
		}
		for _, key := range append(d.Keys, d.Common...) {
			if key.Key == "" || key.Type == "" || key.Doc == "" {
				t.Errorf("%s: %+v", k.Name, key)
			}
		}
		examples[k.Name] = d.Example
	}
	for _, agent := range []string{"ocf:heartbeat:Dummy", "ocf:heartbeat:IPaddr2", "ocf:heartbeat:Filesystem"} {
		d, err := describeKind(t.Context(), agent)
		if err != nil || len(d.Options) == 0 {
			t.Errorf("%s: %+v, %v (Debian package resource-agents)", agent, d, err)
		}
		examples[agent] = d.Example
	}
	for name, example := range examples {
		if _, err := config.Parse(name, []byte(groupOf+example), kinds()); err != nil || example == "" {
			t.Errorf("%v in\n%s", err, example)
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	for _, what := range []string{"mount", "ocf:heartbeat:NoSuchThing"} {
		if _, err := describeKind(t.Context(), what); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var usage *usageError
	if _, err := describeKind(t.Context(), "filesystem:ext4"); !errors.As(err, &usage) {
		t.Errorf("a program of a kind that has none: %v", err)
	}
}
