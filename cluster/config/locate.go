package config

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// mark is where a TOML value was written: the line, and the marks of what it holds.
type mark struct {
	line  int
	keys  map[string]*mark // of a table
	items []*mark          // of an array, also an array of tables
}

// locate finds the lines of all values of a document. The TOML library knows them but
// tells only those of errors, and names an array's tables without their index.
//
// The document must have been accepted by the library. Nothing here checks syntax; on
// other input lines may be missing or wrong, but it always returns.
func locate(doc string) *mark {
	s := &locator{src: strings.TrimPrefix(doc, "\ufeff"), line: 1}
	root := &mark{line: 1}
	current := root
	for s.skip(" \t\r\n"); s.pos < len(s.src); s.skip(" \t\r\n") {
		start := s.pos
		if s.src[s.pos] == '[' {
			current = s.header(root)
		} else {
			s.pair(current)
		}
		if s.pos == start {
			return root
		}
	}
	return root
}

// locator walks through a document once.
type locator struct {
	src  string
	pos  int
	line int
}

// header reads [a.b] or [[a.b]] and returns the table that it opens.
func (s *locator) header(root *mark) *mark {
	line := s.line
	array := strings.HasPrefix(s.src[s.pos:], "[[")
	s.take(1)
	if array {
		s.take(1)
	}
	path := s.key()
	for s.peek() == ']' {
		s.take(1)
	}
	m := root
	for i, part := range path {
		last := i == len(path)-1
		m = m.child(part, line)
		if array && last {
			m.items = append(m.items, &mark{line: line})
		}
		if n := len(m.items); n > 0 {
			m = m.items[n-1]
		} else if last {
			m.line = line
		}
	}
	return m
}

// pair reads key = value.
func (s *locator) pair(table *mark) {
	line := s.line
	m := table
	for _, part := range s.key() {
		m = m.child(part, line)
	}
	if s.peek() == '=' {
		s.take(1)
	}
	s.value(m)
}

// key reads a dotted key with the blanks around it.
func (s *locator) key() []string {
	var path []string
	for {
		s.skip(" \t")
		start := s.pos
		switch s.peek() {
		case '"', '\'':
			s.str()
			path = append(path, unquote(s.src[start:s.pos]))
		default:
			for s.pos < len(s.src) && !strings.ContainsRune("=.] \t\r\n", rune(s.src[s.pos])) {
				s.take(1)
			}
			path = append(path, s.src[start:s.pos])
		}
		s.skip(" \t")
		if s.peek() != '.' {
			return path
		}
		s.take(1)
	}
}

// unquote leaves escapes to the library.
func unquote(quoted string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}

// value reads a value whose mark is m.
func (s *locator) value(m *mark) {
	s.skip(" \t")
	switch s.peek() {
	case '"', '\'':
		s.str()
	case '[':
		s.sequence(']', func() {
			item := &mark{line: s.line}
			m.items = append(m.items, item)
			s.value(item)
		})
	case '{':
		s.sequence('}', func() { s.pair(m) })
	default:
		for s.pos < len(s.src) && !strings.ContainsRune(",]}#\r\n", rune(s.src[s.pos])) {
			s.take(1)
		}
	}
}

// sequence reads what stands between brackets, comma separated, through the end sign.
func (s *locator) sequence(end byte, element func()) {
	s.take(1)
	for {
		s.skip(" \t\r\n,")
		if s.pos >= len(s.src) {
			return
		}
		if s.peek() == end {
			s.take(1)
			return
		}
		start := s.pos
		element()
		if s.pos == start {
			return
		}
	}
}

// str reads a string of any of the four forms.
func (s *locator) str() {
	quote := s.src[s.pos : s.pos+1]
	escapes := quote == `"`
	triple := strings.Repeat(quote, 3)
	multi := strings.HasPrefix(s.src[s.pos:], triple)
	if multi {
		quote = triple
	}
	s.take(len(quote))
	for s.pos < len(s.src) {
		switch {
		case escapes && s.src[s.pos] == '\\':
			s.take(2)
		case strings.HasPrefix(s.src[s.pos:], quote):
			s.take(len(quote))
			// Up to two quotes may stand right before the closing three.
			for i := 0; multi && i < 2 && s.peek() == quote[0]; i++ {
				s.take(1)
			}
			return
		default:
			s.take(1)
		}
	}
}

// skip passes over the given characters, and over comments.
func (s *locator) skip(chars string) {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case strings.IndexByte(chars, c) >= 0:
			s.take(1)
		case c == '#':
			for s.pos < len(s.src) && s.src[s.pos] != '\n' {
				s.take(1)
			}
		default:
			return
		}
	}
}

// take advances by n bytes and counts lines.
func (s *locator) take(n int) {
	end := min(s.pos+n, len(s.src))
	s.line += strings.Count(s.src[s.pos:end], "\n")
	s.pos = end
}

// peek returns the next byte, 0 at the end.
func (s *locator) peek() byte {
	if s.pos >= len(s.src) {
		return 0
	}
	return s.src[s.pos]
}

// child returns the mark of a key, made on this line if it is new.
func (m *mark) child(key string, line int) *mark {
	if c, ok := m.keys[key]; ok {
		return c
	}
	if m.keys == nil {
		m.keys = map[string]*mark{}
	}
	c := &mark{line: line}
	m.keys[key] = c
	return c
}
