package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// committedAs begins the name of a configuration that stands in the replicated log and in no file.
const committedAs = "cluster configuration "

// CommittedName names the configuration that the log's entry of that index holds, for messages: as the path of
// LoadBytes it makes them begin with "cluster configuration 41, line 12".
func CommittedName(index uint64) string { return fmt.Sprintf("%s%d", committedAs, index) }

// LoadBytes is Load for the text that the replicated log holds, or is to hold: secrets are read from this
// host, and must not stand in the text. Path is only for messages.
func LoadBytes(path string, text []byte, kinds Kinds) (*Config, error) {
	return parseText(path, text, kinds, &sources{committed: true})
}

// CheckText is LoadBytes for somebody who has no secrets, or needs none, as who proposes a text for all nodes: it
// finds all that does not depend on this host. What it returns is, as that of Parse, good for looking at.
func CheckText(path string, text []byte, kinds Kinds) (*Config, error) {
	return parseText(path, text, kinds, &sources{committed: true, unread: true})
}

func parseText(path string, text []byte, kinds Kinds, from *sources) (*Config, error) {
	if len(text) <= MaxSize && !utf8.Valid(text) {
		return nil, Errors{{File: path, Line: brokenLine(text), Msg: "the file is not UTF-8", Cure: "save it as UTF-8"}}
	}
	return parse(path, text, kinds, from)
}

// brokenLine is the line of the first byte that is not UTF-8.
func brokenLine(text []byte) int {
	whole := strings.ToValidUTF8(string(text), "\x00")
	at := 0
	for at < len(text) && at < len(whole) && text[at] == whole[at] {
		at++
	}
	return 1 + strings.Count(string(text[:at]), "\n")
}
