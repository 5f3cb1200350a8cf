package config

import (
	"fmt"
	"io"
	"os"
	"slices"
)

// Load reads a file and the secrets that it names, and returns the Config, or all
// problems of the file as Errors.
func Load(path string, kinds Kinds) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Errors{{File: path, Msg: fmt.Sprintf("cannot be read: %v", reason(err)), Cure: "give the path of a hamgr.toml"}}
	}
	defer f.Close()
	info, err := f.Stat()
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, MaxSize+1))
	}
	if err != nil {
		return nil, Errors{{File: path, Msg: fmt.Sprintf("cannot be read: %v", reason(err)), Cure: "give the path of a hamgr.toml"}}
	}
	mode := info.Mode().Perm()
	cfg, err := parse(path, data, kinds, &sources{shared: mode&0o044 != 0, mode: mode})
	if err == nil && mode&0o022 != 0 {
		cfg.Warnings = sorted(append(cfg.Warnings, Problem{
			File: path,
			Msg:  fmt.Sprintf("others can write this file, and thereby what runs as root (mode %04o)", mode),
			Cure: "run: chmod go-w " + quoteShell(path),
		}))
	}
	return cfg, err
}

// Parse checks a file's bytes alone; path is only for messages. Secrets that are kept
// elsewhere are not fetched: the Config is good for looking at, and does not work with
// the devices. What a kind's own check looks at, such as a CA file, it looks at here too.
func Parse(path string, data []byte, kinds Kinds) (*Config, error) {
	return parse(path, data, kinds, nil)
}

func parse(path string, data []byte, kinds Kinds, from *sources) (*Config, error) {
	root, problem := parseTOML(path, string(data))
	if problem != nil {
		return nil, Errors{*problem}
	}
	r := &reader{file: path, kinds: kinds, sources: from, origins: map[string]origin{}}
	d := r.draft(root)
	r.check(d)
	if len(r.problems) > 0 {
		return nil, Errors(sorted(r.problems))
	}
	r.doubt(d)
	d.Warnings, d.origins = sorted(r.warnings), r.origins
	return &d.Config, nil
}

// draft is a Config on its way, with the tables that its parts came from.
type draft struct {
	Config
	top       *table
	cluster   *table
	nodes     []*table
	devices   []*table
	groups    []*table
	resources [][]*table // of each group
}

// The tables of a file.
var sections = []string{"cluster", "node", "fence_device", "group"}

func (r *reader) draft(root *value) *draft {
	d := &draft{Config: Config{Path: r.file, Cluster: defaultCluster, Unarmed: r.kinds.Unarmed}}
	d.top, _ = asTable(root, "")
	r.top(d.top)

	d.cluster = r.one(d.top, "cluster")
	if d.cluster != nil {
		r.decode(d.cluster, nil, &d.Cluster)
	}
	for _, t := range r.many(d.top, "node", "node") {
		n := defaultNode
		r.decode(t, nil, &n)
		d.Nodes, d.nodes = append(d.Nodes, n), append(d.nodes, t)
	}
	for _, t := range r.many(d.top, "fence_device", "fence_device") {
		d.Devices, d.devices = append(d.Devices, r.device(t)), append(d.devices, t)
	}
	for _, t := range r.many(d.top, "group", "group") {
		g := defaultGroup
		r.decode(t, []string{"resource"}, &g)
		tables := r.many(t, "resource", "group.resource")
		for _, rt := range tables {
			g.Resources = append(g.Resources, r.resource(rt))
		}
		d.Groups, d.groups, d.resources = append(d.Groups, g), append(d.groups, t), append(d.resources, tables)
	}
	return d
}

// top reports what does not belong at the top of a file.
func (r *reader) top(t *table) {
	for _, key := range t.written() {
		if slices.Contains(sections, key) {
			continue
		}
		var cluster []string
		for _, f := range fieldsOf(&Cluster{}) {
			cluster = append(cluster, f.key)
		}
		switch {
		case slices.Contains(cluster, key):
			r.problem(t, key, "stands outside of a table", "move it under [cluster]")
		case key == "resource":
			r.problem(t, key, "unknown table", "write [[group.resource]] below the [[group]] that it belongs to")
		default:
			if n := nearest(key, sections); n != "" {
				t.settled[n] = true
			}
			r.problem(t, key, "unknown table", meant(key, sections, "tables"))
		}
	}
}

// one returns the table of a key that is written [key].
func (r *reader) one(t *table, key string) *table {
	v, ok := t.keys[key]
	if !ok {
		return nil
	}
	sub, ok := asTable(v, key)
	if !ok {
		r.problem(t, key, "is "+v.found()+", but one table is wanted", fmt.Sprintf("write [%s] once, with single brackets", key))
		return nil
	}
	return sub
}

// many returns the tables of a key that is written [[header]].
func (r *reader) many(t *table, key, header string) []*table {
	v, ok := t.keys[key]
	if !ok {
		return nil
	}
	list, ok := v.data.([]*value)
	if !ok {
		r.problem(t, key, "is "+v.found()+", but a list of tables is wanted",
			fmt.Sprintf("write [[%s]], with double brackets, above each one", header))
		return nil
	}
	var tables []*table
	for i, item := range list {
		label := fmt.Sprintf("%s #%d", key, i+1)
		if keys, ok := item.data.(map[string]*value); ok && keys["name"] != nil {
			if name, ok := keys["name"].data.(string); ok && name != "" {
				label = fmt.Sprintf("%s %q", key, name)
			}
		}
		if t.label != "" {
			label = t.label + ": " + label
		}
		sub, ok := asTable(item, label)
		if !ok {
			r.problemAt(t, item.line, key, "holds "+item.found()+", but tables are wanted",
				fmt.Sprintf("write [[%s]] above each one", header))
			t.settled[key] = true
			continue
		}
		tables = append(tables, sub)
	}
	return tables
}

// device reads a fence device, its agent's keys included.
func (r *reader) device(t *table) Device {
	d := defaultDevice
	name, _ := stringAt(t, "agent")
	kind, ok := r.kinds.Agents[name]
	if !ok {
		r.common(t, "agent", name, r.kinds.Agents.Names(), "agents", &d)
		return d
	}
	d.Options = kind.Options()
	r.decode(t, nil, &d, d.Options)
	r.validate(t, d.Options.Validate)
	return d
}

// resource reads a resource, its kind's keys included.
func (r *reader) resource(t *table) Resource {
	res := defaultResource
	name, _ := stringAt(t, "kind")
	kind, ok := r.kinds.Resources[name]
	if !ok {
		r.common(t, "kind", name, r.kinds.Resources.Names(), "kinds", &res)
		return res
	}
	res.Options = kind.Options()
	r.decode(t, nil, &res, res.Options)
	r.validate(t, res.Options.Validate)
	return res
}

// common reads the keys that all agents or kinds share, where which one it is cannot
// be told: what the other keys mean is then open, and they are passed over.
func (r *reader) common(t *table, key, name string, known []string, what string, into any) {
	shared := map[string]bool{}
	var sharedKeys []string
	for _, f := range fieldsOf(into) {
		shared[f.key] = true
		sharedKeys = append(sharedKeys, f.key)
	}
	var others []string
	for _, k := range t.written() {
		if !shared[k] {
			others = append(others, k)
		}
	}
	// Where the key itself is misspelled, that is what must be said.
	if !t.has(key) {
		for _, k := range others {
			if nearest(k, sharedKeys) == key {
				r.unknown(t, k, sharedKeys)
			}
		}
	}
	r.decode(t, others, into)
	if _, ok := stringAt(t, key); ok && name != "" {
		r.problem(t, key, fmt.Sprintf("%q is not known", name), meant(name, known, what))
	}
}

func stringAt(t *table, key string) (string, bool) {
	v, ok := t.keys[key]
	if !ok {
		return "", false
	}
	s, ok := v.data.(string)
	return s, ok
}
