//go:build systemdhost

package hosts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// step is a line of a daemon's log.
type step struct {
	at   time.Duration // by the hosts' clock
	node string
	line logLine
}

type logLine struct {
	Time                                   time.Time
	Msg, Group, Resource, Node, Reason, Op string
	Token                                  uint64
	Took                                   time.Duration
}

// steps are what the daemons have logged since a moment about a group, in order.
func (l *lab) steps(name string, since time.Duration) (all []step) {
	wall, mono := time.Now(), monotonic()
	for _, h := range l.hosts {
		for text := range strings.Lines(h.journal("-o", "cat", "-u", "hamgr")) {
			var line logLine
			if json.Unmarshal([]byte(text), &line) != nil && line.Msg == "" || line.Group != name {
				continue
			}
			if at := mono - wall.Sub(line.Time); at >= since {
				all = append(all, step{at: at, node: h.name, line: line})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b step) int { return int(a.at - b.at) })
	return all
}

// tell shows steps around a gap: milliseconds since the last answer before it.
func tell(all []step, from, to time.Duration) string {
	var b strings.Builder
	answered := false
	for _, s := range all {
		if s.at > to && !answered {
			fmt.Fprintf(&b, "\n%8.1f          first answer", ms(to-from))
			answered = true
		}
		fmt.Fprintf(&b, "\n%8.1f %-8s %s %s", ms(s.at-from), s.node, s.line.Msg, s.line.Resource)
		if s.line.Took > 0 {
			fmt.Fprintf(&b, " (took %v)", s.line.Took)
		}
	}
	if !answered {
		fmt.Fprintf(&b, "\n%8.1f          first answer", ms(to-from))
	}
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
