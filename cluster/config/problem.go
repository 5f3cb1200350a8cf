package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, or doubtful, in a file.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1; 0 where the file as a whole is meant
	Key  string `json:"key"`  // `node "alpha": fencing`; may be empty
	Msg  string `json:"message"`
	Cure string `json:"cure"` // what to do about it; may be empty
}

// String gives "file:line: key: msg; cure"; "cluster configuration 41, line 12: ..." where there is no file.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	switch {
	case p.Line > 0 && strings.HasPrefix(p.File, committedAs):
		fmt.Fprintf(&b, ", line %d", p.Line)
	case p.Line > 0:
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.Msg)
	if p.Cure != "" {
		b.WriteString("; " + p.Cure)
	}
	return b.String()
}

// Errors are all problems of a file, sorted by line. No secret is ever part of one.
type Errors []Problem

// Error gives one line per problem.
func (e Errors) Error() string {
	lines := make([]string, 0, len(e))
	for _, p := range e {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by line and drops repetitions.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Msg, b.Msg))
	})
	return slices.Compact(problems)
}
