package main

import (
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
)

// TestKeyCheck goes through what may speak against a change, node by node; the scripts play whole rotations.
func TestKeyCheck(t *testing.T) {
	node := func(heard string, accepts ...string) api.NodeKeys {
		return api.NodeKeys{Name: "beta", Accepts: accepts, HeardWith: heard}
	}
	silent := api.NodeKeys{Name: "beta", Silent: "is not heard"}
	troubled := node("new", "new", "old")
	troubled.Trouble = "cut in two"
	here := []string{"new", "old"}
	for _, c := range []struct {
		what string
		got  []string
		want string
	}{
		{"use: accepted", againstUsing("new", []api.NodeKeys{node("old", "old", "new")}), ""},
		{"use: used already", againstUsing("new", []api.NodeKeys{node("new", "new")}), ""},
		{"use: unknown there", againstUsing("new", []api.NodeKeys{node("old", "old")}), "beta does not accept new"},
		{"use: silent", againstUsing("new", []api.NodeKeys{silent}), "beta is not heard"},
		{"use: its file is broken", againstUsing("new", []api.NodeKeys{troubled}), "cut in two"},

		{"drop: both accepted", againstDropping("old", here, []api.NodeKeys{node("new", "new", "old")}), ""},
		{"drop: gone there", againstDropping("old", here, []api.NodeKeys{node("new", "new")}), ""},
		{"drop: used there", againstDropping("old", here, []api.NodeKeys{node("old", "old", "new")}), "beta uses old"},
		{"drop: heard with it just now", againstDropping("old", here, []api.NodeKeys{node("old", "new", "old")}), "beta is still heard with old"},
		{"drop: silent", againstDropping("old", here, []api.NodeKeys{silent}), "no other key than old"},
		{"drop: its file is broken", againstDropping("old", here, []api.NodeKeys{troubled}), "cut in two"},
		{"drop: a third key is used there", againstDropping("old", here, []api.NodeKeys{node("third", "third", "new")}), "beta uses third, which is not accepted here"},
		{"drop: what is used here is unknown there", againstDropping("old", []string{"new", "old", "third"}, []api.NodeKeys{node("third", "third")}), "beta does not accept new"},

		{"add: the same ring", againstAdding("f", here, []api.NodeKeys{node("", "old", "new"), silent}), ""},
		{"add: a key that is not in the file", againstAdding("f", here, []api.NodeKeys{node("", "new", "third")}), "beta accepts third"},
	} {
		if got := strings.Join(c.got, "\n"); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
