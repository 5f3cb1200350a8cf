package lab

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const textWidth = 110

// WriteText tells the story to people.
func (s Story) WriteText(w io.Writer) error {
	var b strings.Builder
	name := s.Name
	if s.Partition {
		name += " --partition"
	}
	fmt.Fprintf(&b, "%s: %s\n", name, s.Title)
	for _, scene := range s.Scenes {
		scene.write(&b)
	}
	b.WriteString("\n")
	fold(&b, "rule     ", s.Rule.Name+" "+s.Rule.Title+". "+s.Rule.Text)
	fold(&b, "read on  ", strings.Join(s.Rule.Read, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Scene) write(b *strings.Builder) {
	b.WriteString("\n")
	fold(b, "", s.Title)
	who, what := 0, 0
	for _, step := range s.Steps {
		who, what = max(who, utf8.RuneCountInString(step.actors())), max(what, utf8.RuneCountInString(step.What))
	}
	for _, step := range s.Steps {
		begin := fmt.Sprintf("  %-*s  %-*s  ", who, step.actors(), what, step.What)
		text := step.Text
		if step.Token > 0 {
			text = fmt.Sprintf("token %d: %s", step.Token, text)
		}
		fold(b, begin, text)
	}
	fold(b, "  = ", s.Outcome)
}

func (s Step) actors() string {
	if s.To == "" {
		return s.Who
	}
	return s.Who + " -> " + s.To
}

// fold writes a text that begins with begin, in lines that fit, all below the first one's text.
func fold(b *strings.Builder, begin, text string) {
	line, empty := begin, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line+" "+word) > textWidth {
			b.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", utf8.RuneCountInString(begin)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
