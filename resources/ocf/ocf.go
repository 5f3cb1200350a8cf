// Package ocf is the resource kind of whatever an OCF resource agent drives: any of the collection
// resource-agents, or one of the operator's own, unchanged, by the Resource Agent API 1.1 (1.0 included).
//
// An agent is a program that is run once an action. Its word alone is not believed where it counts: after
// start its own monitor must say that it runs, after stop that it does not. What monitor does not answer
// clearly is unknown, and so possibly active.
//
// A run has a session of its own and a mark in its environment that no other run shares. When its time
// is over, all that it has made is killed: members of its sessions, descendants, and bearers of the mark. When it
// ends by itself, what it leaves behind is the service, and is left alone.
package ocf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

const defaultRoot = "/usr/lib/ocf"

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name:    "ocf",
		Doc:     "whatever an OCF resource agent drives, such as ocf:heartbeat:IPaddr2",
		Options: func() resources.Options { return &Options{Root: defaultRoot} },
		Example: example,
		Describe: func(ctx context.Context, program string) (resources.Description, error) {
			return describe(ctx, defaultRoot, program)
		},
		Programs: func() []string { return programs(defaultRoot) },
	}
}

// Options are the keys of an OCF resource in hamgr.toml.
type Options struct {
	Agent      string            `toml:"agent" doc:"the resource agent, as in ocf:heartbeat:IPaddr2; its provider is a directory below ocf_root/resource.d"`
	Params     map[string]string `toml:"params" doc:"the agent's own parameters, each a string; hamgr resource describe AGENT lists them"`
	ParamFiles map[string]string `toml:"param_files" doc:"parameters whose values are secret: the absolute path of a file that holds the value, read at every action; a newline at its end does not count"`
	Depth      int               `toml:"depth" doc:"how thorough the monitor of a started resource is (OCF_CHECK_LEVEL): 0, or what the agent offers, often 10 or 20; default 0"`
	Unpromoted bool              `toml:"unpromoted" doc:"run an agent that knows promoted roles without ever promoting it; otherwise such an agent is refused; default false"`
	Shared     bool              `toml:"shared" doc:"another group may use the same agent with the same parameters at the same time; otherwise that is refused, because what it works on is not known; default false"`
	Root       string            `toml:"ocf_root" doc:"directory of the OCF agents (OCF_ROOT); default /usr/lib/ocf"`
}

// Bounds of what an agent is handed; the kernel takes 128 KB a variable.
const (
	mostParams = 200
	mostValue  = 64 << 10
	mostDepth  = 100
)

// Validate implements resources.Options. It runs nothing: whether the agent knows the parameters is told by Check.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(key, cure, format string, args ...any) {
		errs = append(errs, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
	}
	if _, err := parseName(o.Agent); err != nil {
		wrong("agent", "write it as in ocf:heartbeat:IPaddr2", "%v", err)
	}
	if len(o.Params)+len(o.ParamFiles) > mostParams {
		wrong("params", "", "more than %d parameters", mostParams)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		if msg, cure := checkParam(name, o.Params[name]); msg != "" {
			wrong("params", cure, "%s", msg)
		} else if soundsSecret(name) { // the configuration is copied to every node, and shown
			wrong("params", fmt.Sprintf("write param_files = { %s = \"/etc/hamgr/secrets/...\" }, and the value into that file", name), "%s is a secret", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.ParamFiles)) {
		path := o.ParamFiles[name]
		if msg, cure := checkParam(name, ""); msg != "" {
			wrong("param_files", cure, "%s", msg)
		}
		if _, twice := o.Params[name]; twice {
			wrong("param_files", "keep one of them", "%s is in params too", name)
		}
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			wrong("param_files", "write the whole path, from /", "%s: %q is no absolute path", name, clip(path, 80))
		}
	}
	if o.Depth < 0 || o.Depth > mostDepth {
		wrong("depth", "use 0, 10 or 20", "%d is no depth", o.Depth)
	}
	if !filepath.IsAbs(o.Root) || strings.ContainsRune(o.Root, 0) {
		wrong("ocf_root", "write the whole path, from /", "%q is no absolute path", o.Root)
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options: the same agent, told the same, works on the same thing.
func (o *Options) Exclusive() (key, what string) {
	if o.Shared {
		return "", ""
	}
	name, err := parseName(o.Agent)
	if err != nil {
		return "agent", ""
	}
	return "agent", fmt.Sprintf("%v with %q and %q", name, o.Params, o.ParamFiles)
}

// checkParam looks at what can be told without the agent. The value is not repeated: it may be secret.
func checkParam(name, value string) (msg, cure string) {
	switch {
	case name == "OCF_CHECK_LEVEL":
		return "OCF_CHECK_LEVEL is no parameter", "use depth"
	case strings.HasPrefix(name, "CRM_meta_"), name == "crm_feature_set":
		return name + " is set by hamgr", "leave it out"
	case !isName(name):
		return fmt.Sprintf("%q is no name of a parameter", clip(name, mostName)), "use letters, digits and _"
	case strings.ContainsRune(value, 0):
		return name + " holds a NUL byte", ""
	case len(value) > mostValue:
		return fmt.Sprintf("%s is longer than %d KB", name, mostValue>>10), ""
	}
	return "", ""
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	name, err := parseName(o.Agent)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("private directory of %s: %w", env.Resource, err)
	}
	env.Dir = dir
	return &ocf{opts: *o, name: name, path: name.path(o.Root), env: env, tmp: sharedTmp}, nil
}

var _ interface {
	resources.Resource
	resources.Checker
} = (*ocf)(nil)

type ocf struct {
	opts Options
	name name
	path string
	env  resources.Env
	tmp  string // HA_RSCTMP
}

// Probe implements resources.Resource. What hamgr has not started is looked at as a probe is (interval 0),
// which agents answer more leniently: that nothing is installed is no failure then.
func (o *ocf) Probe(ctx context.Context) (resources.State, string, error) {
	type look struct {
		state  resources.State
		detail string
	}
	seen := make(chan look, 1)
	err := process.Beside(ctx, func() error {
		state, detail, err := o.probe(ctx)
		seen <- look{state, detail}
		return err
	})
	if err != nil {
		return resources.Unknown, "", fmt.Errorf("monitor by %s: %w", o.name, err)
	}
	l := <-seen
	return l.state, l.detail, nil
}

func (o *ocf) probe(ctx context.Context) (resources.State, string, error) {
	held, err := lock(ctx, o.env.Dir)
	if err != nil {
		return resources.Unknown, "", err
	}
	defer held.Close()
	left, err := o.earlier(ctx)
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(left) > 0 {
		return resources.Unknown, "", fmt.Errorf("an earlier action still runs: %s", process.List(left))
	}
	begun, err := o.begun()
	if err != nil {
		return resources.Unknown, "", err
	}
	m, err := o.fit(ctx)
	if err != nil && begun == nil {
		return resources.Unknown, "", err
	}
	if err != nil { // an agent that was replaced meanwhile may still know whether the service runs
		m = &metadata{}
	}
	state, detail, err := o.monitor(ctx, m, begun != nil)
	if state == resources.Active && begun != nil && begun.Token != o.env.Token {
		return resources.Failed, fmt.Sprintf("still runs under token %d", begun.Token), nil
	}
	if state == resources.Active && begun == nil {
		detail += "; hamgr did not start it in this boot"
	}
	return state, detail, err
}

// fit reads the metadata, and holds the options against it.
func (o *ocf) fit(ctx context.Context) (*metadata, error) {
	m, err := readMetadata(ctx, o.opts.Root, o.name)
	if err != nil {
		return nil, err
	}
	return m, o.check(m)
}

// monitor asks the agent for the state. recurring is the monitor of what was started, with the configured depth.
func (o *ocf) monitor(ctx context.Context, m *metadata, recurring bool) (resources.State, string, error) {
	a := call{action: "monitor"}
	if recurring {
		a.depth = o.opts.Depth
		a.interval = m.interval(o.opts.Depth)
	}
	r, err := o.run(ctx, a)
	if err != nil {
		return resources.Unknown, "", err
	}
	return r.state()
}
