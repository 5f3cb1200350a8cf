package exec

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Bounds of what an agent may say about itself. The largest of fence-agents 4.12 has 12 KB.
const (
	mostMetadata   = 1 << 20
	mostParameters = 1000
	mostName       = 100
	mostDepth      = 20
	// metadataLimit bounds the reading where the context does not.
	metadataLimit = 10 * time.Second
)

// metadata is what an agent says about itself (the fence agents' API; printed by metadata in fencing.py).
type metadata struct {
	name, short, long string
	parameters        []parameter
	actions           []action
}

// parameter is one option of an agent.
type parameter struct {
	name      string
	kind      string // string, integer, second, boolean, select
	required  bool
	old       bool   // deprecated: another name of a newer one
	obsoletes string // the name that it replaces
	fallback  string // its default
	choices   []string
	doc       string
}

type action struct {
	name                string
	automatic, onTarget bool // of on: unfencing
}

// document is the XML in which the agents print it.
type document struct {
	XMLName    xml.Name `xml:"resource-agent"`
	Name       string   `xml:"name,attr"`
	Short      string   `xml:"shortdesc,attr"`
	Long       string   `xml:"longdesc"`
	Parameters []struct {
		Name       string `xml:"name,attr"`
		Required   string `xml:"required,attr"`
		Deprecated string `xml:"deprecated,attr"`
		Obsoletes  string `xml:"obsoletes,attr"`
		Doc        string `xml:"shortdesc"`
		Content    struct {
			Type    string `xml:"type,attr"`
			Default string `xml:"default,attr"`
			Options []struct {
				Value string `xml:"value,attr"`
			} `xml:"option"`
		} `xml:"content"`
	} `xml:"parameters>parameter"`
	Actions []struct {
		Name      string `xml:"name,attr"`
		Automatic string `xml:"automatic,attr"`
		OnTarget  string `xml:"on_target,attr"`
	} `xml:"actions>action"`
}

// parseMetadata reads the XML. What is not in it stays empty; what is needed is checked by unfit.
func parseMetadata(b []byte) (*metadata, error) {
	if i := bytes.IndexByte(b, '<'); i > 0 {
		b = b[i:] // Python prints warnings before it
	}
	if err := checkDepth(b); err != nil {
		return nil, err
	}
	var doc document
	if err := xml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("not metadata: %w", err)
	}
	if len(doc.Parameters) > mostParameters || len(doc.Actions) > mostParameters {
		return nil, errors.New("not metadata: it lists too much")
	}
	m := &metadata{name: doc.Name, short: prose(doc.Short), long: prose(doc.Long)}
	seen := map[string]bool{}
	for _, p := range doc.Parameters {
		if !isName(p.Name) || seen[p.Name] {
			return nil, fmt.Errorf("not metadata: a parameter is named %q, or named twice", agents.Clip(p.Name, 40))
		}
		seen[p.Name] = true
		out := parameter{
			name: p.Name, kind: p.Content.Type, required: isTrue(p.Required), old: isTrue(p.Deprecated),
			obsoletes: p.Obsoletes, fallback: agents.Clip(p.Content.Default, 200), doc: prose(p.Doc),
		}
		for _, o := range p.Content.Options {
			out.choices = append(out.choices, agents.Clip(o.Value, mostName))
		}
		m.parameters = append(m.parameters, out)
	}
	for _, a := range doc.Actions {
		m.actions = append(m.actions, action{a.Name, isTrue(a.Automatic), isTrue(a.OnTarget)})
	}
	return m, nil
}

// checkDepth refuses what is nested so deeply that decoding it would cost much.
func checkDepth(b []byte) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	for depth := 0; depth <= mostDepth; {
		token, err := d.RawToken()
		if err != nil {
			return nil // the end, or a mistake that Unmarshal tells of
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return errors.New("not metadata: nested too deeply")
}

// prose puts a text on one line.
func prose(s string) string { return agents.Clip(strings.Join(strings.Fields(s), " "), 2000) }

func isTrue(s string) bool { return s == "1" || strings.EqualFold(s, "true") }

// isName reports whether a name can stand before = on a line of its own.
func isName(s string) bool {
	return s != "" && len(s) <= mostName && !strings.ContainsFunc(s, func(r rune) bool {
		return !isLetter(r) && r != '_' && r != '-' && r != '.'
	})
}

// fold ignores the difference between - and _, as the agents do.
func fold(name string) string { return strings.ReplaceAll(name, "-", "_") }

// parameter finds an option by one of its names.
func (m *metadata) parameter(name string) (parameter, bool) {
	i := slices.IndexFunc(m.parameters, func(p parameter) bool { return p.name == name })
	if i < 0 {
		i = slices.IndexFunc(m.parameters, func(p parameter) bool { return fold(p.name) == fold(name) })
	}
	if i < 0 {
		return parameter{}, false
	}
	return m.parameters[i], true
}

func (m *metadata) has(name string) bool { _, ok := m.parameter(name); return ok }

// meaning is the newest name of an option: ip for ipaddr.
func (m *metadata) meaning(p parameter) string {
	if !p.old {
		return fold(p.name)
	}
	for _, newer := range m.parameters {
		if newer.obsoletes == p.name || fold(newer.obsoletes) == fold(p.name) && newer.obsoletes != "" {
			return fold(newer.name)
		}
	}
	return fold(p.name)
}

func (m *metadata) can(name string) bool {
	return slices.ContainsFunc(m.actions, func(a action) bool { return a.name == name })
}

// plugName is the option that takes the plug; empty if the agent has none.
func (m *metadata) plugName() string {
	for _, name := range []string{"plug", "port"} {
		if m.has(name) {
			return name
		}
	}
	return ""
}

// readMetadata asks an agent about itself. No secret is handed to it.
func readMetadata(ctx context.Context, path string) (*metadata, error) {
	version, err := os.Stat(path)
	if err != nil {
		return nil, startError(err)
	}
	if m := shelf.get(path, version); m != nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataLimit)
	defer cancel()
	r, err := execute(ctx, path, []byte("action=metadata\n"), mostMetadata)
	if err != nil {
		return nil, err
	}
	if r.status != 0 {
		return nil, r.refusal(censor{})
	}
	if r.cut {
		return nil, fmt.Errorf("%w: its metadata is longer than %d KB", agents.ErrUnfit, mostMetadata>>10)
	}
	m, err := parseMetadata([]byte(r.stdout))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", agents.ErrUnfit, err)
	}
	shelf.put(path, version, m)
	return m, nil
}

// shelf keeps the metadata of programs as long as their files do not change: to ask a Python program
// costs a shot some 50 ms.
var shelf metadataShelf

type metadataShelf struct {
	mu    sync.Mutex
	books map[string]metadataBook
}

type metadataBook struct {
	version os.FileInfo
	text    *metadata
}

func (s *metadataShelf) get(path string, now os.FileInfo) *metadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.books[path]
	if !ok || !os.SameFile(b.version, now) || b.version.Size() != now.Size() || !b.version.ModTime().Equal(now.ModTime()) {
		return nil
	}
	return b.text
}

func (s *metadataShelf) put(path string, version os.FileInfo, m *metadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.books == nil {
		s.books = map[string]metadataBook{}
	}
	s.books[path] = metadataBook{version, m}
}
