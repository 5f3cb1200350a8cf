package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/resources"
)

// held is what a daemon of this boot started of a group, as it was configured then. It is written
// before the first start and removed after the last stop, so that the next daemon stops what is
// really there, whatever its own file says by then. It lives in the run directory: nothing of
// it outlives the kernel, and a crash of the daemon loses no write.
type held struct {
	Token    uint64   `json:"token"`
	Restarts restarts `json:"restarts_ns,omitempty"`
	// Maintained says that the group was in maintenance, as far as the daemon knew.
	Maintained bool           `json:"maintained,omitempty"`
	Resources  []heldResource `json:"resources"`
}

type heldResource struct {
	Name            string          `json:"name"`
	Kind            string          `json:"kind"`
	StartTimeout    time.Duration   `json:"start_timeout_ns"`
	StopTimeout     time.Duration   `json:"stop_timeout_ns"`
	MonitorInterval time.Duration   `json:"monitor_interval_ns"`
	MonitorTimeout  time.Duration   `json:"monitor_timeout_ns"`
	OnFail          string          `json:"on_fail,omitempty"`
	Options         json.RawMessage `json:"options"`
}

const heldFolder = "held"

// The run directory has a file for each group that is held, and a folder for each resource.
func (n *Node) heldDir() string              { return filepath.Join(n.RunDir, heldFolder) }
func (n *Node) heldFile(group string) string { return filepath.Join(n.heldDir(), group+".json") }
func (n *Node) resourceDir(group, resource string) string {
	return filepath.Join(n.RunDir, "groups", group, resource)
}

// hold records what is about to be started.
func (n *Node) hold(group string, parts []*part, h held) error {
	for _, p := range parts {
		options, err := json.Marshal(p.conf.Options)
		if err != nil {
			return fmt.Errorf("record what is started: %w", err)
		}
		c := p.conf
		h.Resources = append(h.Resources, heldResource{c.Name, c.Kind, c.StartTimeout, c.StopTimeout, c.MonitorInterval, c.MonitorTimeout, c.OnFail, options})
	}
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("record what is started: %w", err)
	}
	if err := noteInBoot(n.heldFile(group), b); err != nil {
		return fmt.Errorf("record what is started: %w", err)
	}
	return nil
}

// noteInBoot replaces a file of the run directory. A daemon that dies leaves it whole; the kernel's death ends what it says,
// so that nothing makes it durable.
func noteInBoot(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// letGo removes the record, after everything is stopped.
func (n *Node) letGo(group string) error {
	err := os.Remove(n.heldFile(group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// recall gives the record of a group; nil if nothing of it was started in this boot.
func (n *Node) recall(group string) (*held, error) {
	b, err := os.ReadFile(n.heldFile(group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("what was started of group %s: %w", group, err)
	}
	var h held
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("what was started of group %s: %s: %w", group, n.heldFile(group), err)
	}
	return &h, nil
}

// recalled lists the groups of which something was started in this boot.
func (n *Node) recalled() ([]string, error) {
	files, err := os.ReadDir(n.heldDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var groups []string
	for _, f := range files {
		if group, ok := strings.CutSuffix(f.Name(), ".json"); ok {
			groups = append(groups, group)
		}
	}
	return groups, err
}

// parts makes the resources again as they were started.
func (h *held) parts(n *Node, group string) ([]*part, error) {
	var confs []config.Resource
	for _, r := range h.Resources {
		if r.Name != filepath.Base(r.Name) || !filepath.IsLocal(r.Name) {
			return nil, fmt.Errorf("%s names a resource %q", n.heldFile(group), r.Name)
		}
		kind, ok := n.Kinds.Resources[r.Kind]
		if !ok {
			return nil, fmt.Errorf("resource %s was started as kind %q, which this daemon does not know", r.Name, r.Kind)
		}
		conf := config.Resource{
			Name: r.Name, Kind: r.Kind, StartTimeout: r.StartTimeout, StopTimeout: r.StopTimeout,
			MonitorInterval: r.MonitorInterval, MonitorTimeout: r.MonitorTimeout, OnFail: r.OnFail, Options: kind.Options(),
		}
		if err := json.Unmarshal(r.Options, conf.Options); err != nil {
			return nil, fmt.Errorf("resource %s: %w", r.Name, err)
		}
		confs = append(confs, conf)
	}
	parts, err := buildParts(n, group, confs, h.Token)
	for _, p := range parts {
		p.used = true
	}
	return parts, err
}

// part is one resource of a group, made for one grant.
type part struct {
	resources.Resource
	conf config.Resource
	busy chan struct{} // holds one while a call is in flight
	died bool          // it told its death since its last start
	used bool          // something was started, by this daemon or, for all it knows, by an earlier one

	state  resources.State
	detail string
}

// buildParts makes the resources of a group for a grant; token 0 is for looking only.
func buildParts(n *Node, group string, confs []config.Resource, token uint64) ([]*part, error) {
	var parts []*part
	for _, c := range confs {
		dir := n.resourceDir(group, c.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &resourceError{resource: c.Name, err: err}
		}
		res, err := c.Options.New(resources.Env{
			Group: group, Resource: c.Name, Node: n.Self, Boot: n.Boot, Token: token,
			Dir: dir, Log: n.Log.With("group", group, "resource", c.Name, "token", token),
		})
		if err != nil {
			return nil, &resourceError{resource: c.Name, err: err}
		}
		parts = append(parts, &part{Resource: res, conf: c, busy: make(chan struct{}, 1)})
	}
	return parts, nil
}
