package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func (c *cli) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// say talks to the operator.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.err, printable(fmt.Sprintf(format, args...)))
}

// printable replaces what could move a terminal's cursor or fake a line: texts come from
// fence devices and from other hosts.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return unicode.ReplacementChar
	}, s)
}

// table prints rows in aligned columns; the first row is the heading.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// write leaves out the columns that are empty in every row but the heading.
func (t table) write(w io.Writer, indent string) {
	width := make([]int, len(t[0]))
	for _, row := range t[1:] {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(printable(cell)))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			if width[i] == 0 {
				continue
			}
			full := max(width[i], utf8.RuneCountInString(t[0][i]))
			cell = printable(cell)
			line.WriteString(cell + strings.Repeat(" ", full-utf8.RuneCountInString(cell)+2))
		}
		fmt.Fprintln(w, strings.TrimRight(indent+line.String(), " "))
	}
}

// plural counts in words: "1 node", "3 nodes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shortMS gives a time in milliseconds three figures and a unit.
func shortMS(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.3gs", d.Seconds())
	case d < time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60), "00s")
	case d < 48*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60), "00m")
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}
