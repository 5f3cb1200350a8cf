package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// MaxSize bounds the text of a configuration, in bytes; a real one has a few KiB, and the parser is recursive.
const MaxSize = 256 << 10

// parseTOML reads a document into a tree with lines.
func parseTOML(path, doc string) (root *value, problem *Problem) {
	if len(doc) > MaxSize {
		return nil, &Problem{File: path, Msg: "is larger than 256 KiB", Cure: "give the path of a hamgr.toml"}
	}
	// The library panics on what it takes for impossible. A file must not end a daemon.
	defer func() {
		if recover() != nil {
			root, problem = nil, &Problem{File: path, Msg: "is not valid TOML", Cure: "compare it with the samples in etc/"}
		}
	}()
	var data map[string]any
	_, err := toml.Decode(doc, &data)
	if err == nil {
		return grow(data, locate(doc), 1), nil
	}
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return nil, &Problem{File: path, Msg: "is not valid TOML", Cure: "compare it with the samples in etc/"}
	}
	p := &Problem{File: path, Line: max(pe.Position.Line, 1), Key: pe.LastKey}
	p.Msg, p.Cure = plain(pe.Message)
	if p.Msg == writtenTwice {
		p.Key = between(pe.Message, "Key '", "'")
		if first := firstOf(doc, p.Key, p.Line); first > 0 {
			p.Msg = fmt.Sprintf("%s, first in line %d", writtenTwice, first)
		}
		if slices.Contains(lists, p.Key) {
			p.Cure = fmt.Sprintf("write [[%s]], with double brackets, above each one", p.Key)
		}
	}
	return nil, p
}

const writtenTwice = "is written twice"

// The tables of which there are several.
var lists = []string{"node", "fence_device", "group", "group.resource"}

// sentences put the library's messages into plain words. The messages themselves are
// never shown: they quote the file, and what they quote may be a password that lost
// its quotes.
var sentences = []struct{ has, msg, cure string }{
	{"has already been defined", writtenTwice, "keep one of them"},
	{"was already created", writtenTwice, "keep one of them"},
	{"is not a table", "is used both as a value and as a table", "keep one of them"},
	{"strings cannot contain newlines", "the string does not end on its line", "close it with a quote"},
	{`unexpected EOF; expected '"`, "a string is never closed", "close it with a quote"},
	{`unexpected EOF; expected "'`, "a string is never closed", "close it with a quote"},
	{"invalid escape", `a backslash in a "string" begins an escape that does not exist`, `write \\ for a backslash, or put the value in 'single quotes'`},
	{"hexadecimal digits after", `a backslash in a "string" begins an incomplete escape`, `write \\ for a backslash, or put the value in 'single quotes'`},
	{"is not valid UTF-8", "an escape does not name a character", `put the value in 'single quotes'`},
	{"expected '.' or '='", "there is no = after the key", `write key = "value"`},
	{"expected value but found", "the value is missing or is not in quotes", `write key = "value"`},
	{"expected value", "the value is missing", `write key = "value"`},
	{"table array name delimiter", "the header does not end in ]]", "write it like [[node]]"},
	{"to end table name", "the header does not end in ]", "write it like [cluster] or [[node]]"},
	{"table name", "the header has no name", "write it like [cluster] or [[node]]"},
	{"table separator", "the header has no name", "write it like [cluster] or [[node]]"},
	{"array terminator", "a list is not closed, or a comma is missing in it", `write ["a", "b"]`},
	{"inline table terminator", "a { } table is not closed, or a comma is missing in it", `write { a = ["1"], b = ["2"] }`},
	{"unexpected comma", "there is a comma too many", "remove it"},
	{"top-level item to end", "something stands behind the value", `put the whole value in quotes, one key per line`},
	{"key name appears blank", "there is no key before the =", `write key = "value"`},
	{"keys cannot start with", "the key begins with a dot", "remove the dot"},
	{"control characters", "there is a control character in the file", `remove it, or write it as an escape like "\t"`},
	{"UTF-16", "the file is not UTF-8", "save it as UTF-8"},
	{"invalid UTF-8", "the file is not UTF-8", "save it as UTF-8"},
	{"nteger", "the number is not valid", "write it in plain digits, or in quotes if it is a string"},
	{"loat", "the number is not valid", "write it in plain digits, or in quotes if it is a string"},
	{"number", "the number is not valid", "write it in plain digits, or in quotes if it is a string"},
	{"expected a digit", "the number is not valid", "write it in plain digits, or in quotes if it is a string"},
	{"out of range", "the number is too large", "write a smaller one, or put it in quotes if it is a string"},
	{"datetime", "this looks like a date, but is none", "put the value in quotes"},
}

func plain(message string) (msg, cure string) {
	for _, s := range sentences {
		if strings.Contains(message, s.has) {
			return s.msg, s.cure
		}
	}
	return "this is not valid TOML", "compare it with the samples in etc/"
}

func between(s, before, after string) string {
	_, s, _ = strings.Cut(s, before)
	s, _, _ = strings.Cut(s, after)
	return s
}

// firstOf finds where a key that is written twice stood first: the marks of the
// document up to, but without, the second one.
func firstOf(doc, key string, second int) int {
	lines := strings.SplitAfter(doc, "\n")
	m := locate(strings.Join(lines[:min(second-1, len(lines))], ""))
	for _, part := range strings.Split(key, ".") {
		if n := len(m.items); n > 0 {
			m = m.items[n-1]
		}
		if m = m.keys[part]; m == nil {
			return 0
		}
	}
	return m.line
}
