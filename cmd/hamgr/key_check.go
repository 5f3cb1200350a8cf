package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
)

// What speaks against a change of a host's key file, in words. A node that says nothing may have any keys.

// againstAdding: the file goes to all nodes after that, and whoever uses a key that is not in it would be cut off.
func againstAdding(file string, keys []string, nodes []api.NodeKeys) (words []string) {
	for _, n := range nodes {
		for _, key := range n.Accepts {
			if !slices.Contains(keys, key) {
				words = append(words, fmt.Sprintf("%s accepts %s, which is not in %s: a copy of this file would take it away there", n.Name, key, file))
			}
		}
	}
	return words
}

// againstUsing: whoever does not accept the key would not hear this host any more.
func againstUsing(key string, nodes []api.NodeKeys) (words []string) {
	for _, n := range nodes {
		switch {
		case n.Silent != "":
			words = append(words, fmt.Sprintf("%s %s: whether it accepts %s is not known", n.Name, n.Silent, key))
		case n.Trouble != "":
			words = append(words, fmt.Sprintf("%s cannot use its file: %s", n.Name, n.Trouble))
		case !slices.Contains(n.Accepts, key):
			words = append(words, fmt.Sprintf("%s does not accept %s", n.Name, key))
		}
	}
	return words
}

// againstDropping: this host would not hear who uses the key, and must go on to speak and hear with all others by the keys
// that are left.
func againstDropping(key string, keys []string, nodes []api.NodeKeys) (words []string) {
	left := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == key })
	for _, n := range nodes {
		switch {
		case n.Silent != "":
			words = append(words, fmt.Sprintf("%s %s: it may have no other key than %s", n.Name, n.Silent, key))
		case n.Trouble != "":
			words = append(words, fmt.Sprintf("%s cannot use its file: %s", n.Name, n.Trouble))
		case n.Uses() == key:
			words = append(words, fmt.Sprintf("%s uses %s", n.Name, key))
		case n.HeardWith == key:
			words = append(words, fmt.Sprintf("%s is still heard with %s", n.Name, key))
		case !slices.Contains(left, n.Uses()):
			words = append(words, fmt.Sprintf("%s uses %s, which is not accepted here", n.Name, n.Uses()))
		case len(left) > 0 && !slices.Contains(n.Accepts, left[0]):
			words = append(words, fmt.Sprintf("%s does not accept %s, which this host uses", n.Name, left[0]))
		}
	}
	return words
}

// nextOfRotation tells an operator what to do until one key is left.
func nextOfRotation(file string, keys []string, nodes []api.NodeKeys) (next []string) {
	var silent, troubled, lacking, uses []string
	for _, n := range nodes {
		switch {
		case n.Silent != "":
			silent = append(silent, n.Name)
			continue
		case n.Trouble != "":
			troubled = append(troubled, n.Name)
		}
		if !slices.Contains(uses, n.Uses()) {
			uses = append(uses, n.Uses())
		}
		if slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(n.Accepts, k) }) {
			lacking = append(lacking, n.Name)
		}
		for _, key := range n.Accepts {
			if !slices.Contains(keys, key) {
				next = append(next, fmt.Sprintf("%s is not in %s, but on %s: drop it there, or copy the file from there", key, file, n.Name))
			}
		}
	}
	say := func(format string, args ...any) { next = append(next, fmt.Sprintf(format, args...)) }
	if len(troubled) > 0 {
		say("mend the file on %s", strings.Join(troubled, ", "))
	}
	rotating := len(keys) > 1 || len(uses) > 1 || len(lacking) > 0 || len(next) > 0
	if len(silent) > 0 && rotating {
		say("bring back %s: a rotation waits for every node", strings.Join(silent, ", "))
	}
	if len(next) > 0 {
		return next
	}
	switch {
	case len(lacking) > 0:
		say("copy %s in place of the key file on %s, or drop there what was dropped here: hamgr key list shows it", file, strings.Join(lacking, ", "))
	case len(uses) > 1:
		say("hamgr key use KEY, with the same key, on every node")
	case len(keys) > 1:
		for _, key := range keys[1:] {
			say("if %s is the new key: hamgr key use %s, on every node; if it is the old one: hamgr key drop %s, on every node", key, key, key)
		}
	}
	return next
}
