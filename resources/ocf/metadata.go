package ocf

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// Bounds of what an agent may say about itself. The largest of resource-agents 4.12 has 13 KB.
const (
	mostMetadata = 1 << 20
	mostEntries  = 1000
	mostName     = 100
	mostNesting  = 20
	mostTime     = 24 * time.Hour
	// metadataLimit bounds the reading where the context does not.
	metadataLimit = 10 * time.Second
)

// metadata is what an agent says about itself (API 1.1, Resource Agent Meta-Data).
type metadata struct {
	name, doc  string
	parameters []parameter
	actions    []action
}

type parameter struct {
	name     string
	kind     string // string, integer, boolean, select
	required bool
	unique   bool   // no two resources may share it, alone or with others
	newer    string // what replaces it; "-" if it is old and nothing does
	fallback string // its default
	choices  []string
	doc      string
}

type action struct {
	name              string
	timeout, interval time.Duration
	depth             int
}

// text is prose that may have markup in it, as API 1.0 allows.
type text struct {
	Inner string `xml:",innerxml"`
}

// document is the metadata's XML (ra-api.rng of the API; ra-api-1.dtd for 1.0).
type document struct {
	XMLName    xml.Name         `xml:"resource-agent"`
	Name       string           `xml:"name,attr"`
	Short      []text           `xml:"shortdesc"`
	Long       []text           `xml:"longdesc"`
	Parameters []parameterEntry `xml:"parameters>parameter"`
	Actions    []struct {
		Name     string `xml:"name,attr"`
		Timeout  string `xml:"timeout,attr"`
		Interval string `xml:"interval,attr"`
		Depth    string `xml:"depth,attr"`
	} `xml:"actions>action"`
}

type parameterEntry struct {
	Name        string `xml:"name,attr"`
	Required    string `xml:"required,attr"`
	Unique      string `xml:"unique,attr"`
	UniqueGroup string `xml:"unique-group,attr"`
	Short       []text `xml:"shortdesc"`
	Long        []text `xml:"longdesc"`
	Deprecated  *struct {
		By []struct {
			Name string `xml:"name,attr"`
		} `xml:"replaced-with"`
	} `xml:"deprecated"`
	Content struct {
		Type    string `xml:"type,attr"`
		Default string `xml:"default,attr"`
		Options []struct {
			Value string `xml:"value,attr"`
		} `xml:"option"`
	} `xml:"content"`
}

// parseMetadata reads the XML. What is not in it stays empty.
func parseMetadata(b []byte) (*metadata, error) {
	if err := checkNesting(b); err != nil {
		return nil, err
	}
	var doc document
	if err := xml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("not metadata: %s", clip(err.Error(), 200))
	}
	if len(doc.Parameters) > mostEntries || len(doc.Actions) > mostEntries {
		return nil, errors.New("not metadata: it lists too much")
	}
	m := &metadata{name: clip(doc.Name, mostName), doc: prose(doc.Long, doc.Short)}
	for _, p := range doc.Parameters {
		if _, twice := m.parameter(p.Name); twice || !isName(p.Name) {
			return nil, fmt.Errorf("not metadata: a parameter is named %q, or named twice", clip(p.Name, mostName))
		}
		m.parameters = append(m.parameters, p.parameter())
	}
	for _, a := range doc.Actions {
		depth, _ := strconv.Atoi(a.Depth)
		m.actions = append(m.actions, action{clip(a.Name, mostName), duration(a.Timeout), duration(a.Interval), depth})
	}
	return m, nil
}

func (e parameterEntry) parameter() parameter {
	p := parameter{
		name: e.Name, kind: clip(e.Content.Type, mostName), required: isTrue(e.Required), unique: isTrue(e.Unique) || e.UniqueGroup != "",
		fallback: clip(e.Content.Default, 200), doc: prose(e.Long, e.Short),
	}
	if e.Deprecated != nil {
		p.newer = "-"
		if len(e.Deprecated.By) > 0 && isName(e.Deprecated.By[0].Name) {
			p.newer = e.Deprecated.By[0].Name
		}
	}
	for _, c := range e.Content.Options {
		p.choices = append(p.choices, clip(c.Value, mostName))
	}
	return p
}

// checkNesting refuses what is nested so deeply that decoding it would cost much.
func checkNesting(b []byte) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	for depth := 0; depth <= mostNesting; {
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

// prose puts the first text that is not empty on one line; the first language comes first.
func prose(lists ...[]text) string {
	for _, list := range lists {
		for _, t := range list {
			if s := strings.Join(strings.Fields(plain(t.Inner)), " "); s != "" {
				return clip(s, 2000)
			}
		}
	}
	return ""
}

// plain takes the markup out of a piece of XML.
func plain(inner string) string {
	var b strings.Builder
	d := xml.NewDecoder(strings.NewReader(inner))
	for {
		token, err := d.RawToken()
		if err != nil {
			return b.String()
		}
		if data, ok := token.(xml.CharData); ok {
			b.Write(data)
		}
	}
}

func isTrue(s string) bool { return s == "1" || strings.EqualFold(s, "true") }

// duration reads a hint such as "20s", "20" (seconds), "1500ms" or "2min"; zero if it is none.
func duration(s string) time.Duration {
	s = strings.TrimSpace(s)
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz ")
	unit, ok := map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "ms": time.Millisecond, "msec": time.Millisecond,
		"us": time.Microsecond, "usec": time.Microsecond, "m": time.Minute, "min": time.Minute, "h": time.Hour, "hr": time.Hour,
	}[strings.TrimSpace(s[len(digits):])]
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n > uint64(mostTime/unit) {
		return 0
	}
	return time.Duration(n) * unit
}

func (m *metadata) parameter(name string) (parameter, bool) {
	i := slices.IndexFunc(m.parameters, func(p parameter) bool { return p.name == name })
	if i < 0 {
		return parameter{}, false
	}
	return m.parameters[i], true
}

func (m *metadata) can(name string) bool {
	return slices.ContainsFunc(m.actions, func(a action) bool { return a.name == name })
}

// promotable tells an agent that knows the promoted role.
func (m *metadata) promotable() bool { return m.can("promote") || m.can("demote") }

// interval is the one that the agent advises for monitors of a depth, or of the next lower one.
func (m *metadata) interval(depth int) time.Duration {
	best := action{depth: -1}
	for _, a := range m.actions {
		if a.name == "monitor" && a.interval > 0 && a.depth <= depth && a.depth > best.depth {
			best = a
		}
	}
	if best.interval == 0 {
		return 10 * time.Second
	}
	return best.interval
}

// timeout is the longest that the agent advises for an action.
func (m *metadata) timeout(name string) time.Duration {
	var longest time.Duration
	for _, a := range m.actions {
		if a.name == name {
			longest = max(longest, a.timeout)
		}
	}
	return longest
}

// readMetadata asks an agent about itself. No parameter is handed to it.
func readMetadata(ctx context.Context, root string, n name) (*metadata, error) {
	version, err := n.look(root)
	if err != nil {
		return nil, err
	}
	path := n.path(root)
	if m := shelf.get(path, version); m != nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataLimit)
	defer cancel()
	r, err := execute(ctx, job{path: path, action: "meta-data", env: basicEnviron(root, n), mark: newMark(), most: mostMetadata, alone: true})
	if err != nil {
		return nil, fmt.Errorf("read its metadata: %w", err)
	}
	if r.status != 0 {
		return nil, fmt.Errorf("%w: read its metadata: %s", resources.ErrSetup, r.says())
	}
	if r.cut {
		return nil, fmt.Errorf("%w: its metadata is longer than %d KB", resources.ErrSetup, mostMetadata>>10)
	}
	m, err := parseMetadata([]byte(r.stdout))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", resources.ErrSetup, err)
	}
	shelf.put(path, version, m)
	return m, nil
}

// shelf keeps the metadata of programs as long as their files do not change.
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
