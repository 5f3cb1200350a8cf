package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/node"
)

// Of the kind "keys DIR" the daemons go by the files alpha.key, beta.key and gamma.key of that folder: alpha, which answers, by
// what it read last, and the others by what is there. One without a file is silent. Of the kind "stubborn DIR" alpha
// reads its file never again.

// Keys tells what the files say.
func (c *canned) Keys(context.Context) (api.Keys, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, dir, _ := strings.Cut(c.kind, " ")
	if c.keys == nil {
		c.keys = keysIn(dir, "alpha")
	}
	return api.Keys{Node: "alpha", File: filepath.Join(dir, "alpha.key"), Nodes: []api.NodeKeys{*c.keys, *keysIn(dir, "beta"), *keysIn(dir, "gamma")}}, nil
}

// ReloadKeys has alpha read its file.
func (c *canned) ReloadKeys(ctx context.Context) (api.Keys, error) {
	c.mu.Lock()
	if kind, dir, _ := strings.Cut(c.kind, " "); kind == "keys" {
		now := keysIn(dir, "alpha")
		if now.Trouble != "" && c.keys != nil {
			now.Accepts = c.keys.Accepts
		}
		c.keys = now
	}
	c.mu.Unlock()
	return c.Keys(ctx)
}

func keysIn(dir, name string) *api.NodeKeys {
	keys, err := node.KeyFile(filepath.Join(dir, name+".key")).Keys()
	n := &api.NodeKeys{Name: name, Accepts: append([]string{}, keys...)}
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.ErrNotFound, errors.Is(err, fs.ErrNotExist):
		n.Silent = "is not heard"
	case err != nil:
		n.Trouble = err.Error()
	case name != "alpha":
		n.HeardWith = keys[0]
	}
	return n
}
