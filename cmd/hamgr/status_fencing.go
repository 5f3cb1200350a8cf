package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// proven tells how long ago fencing was last proven to cut the node's power: of several devices, the one that
// it is longest ago for, and those that never did.
func proven(f api.FencingStatus, now time.Time) string {
	if len(f.Levels) == 0 {
		return ""
	}
	var (
		oldest time.Time
		never  []string
	)
	for _, r := range f.Rehearsals {
		switch {
		case r.At.IsZero():
			never = append(never, r.Device)
		case oldest.IsZero() || r.At.Before(oldest):
			oldest = r.At
		}
	}
	if len(f.Rehearsals) == 0 { // a daemon that does not tell them apart
		oldest = f.LastProven
	}
	switch {
	case oldest.IsZero():
		return "never"
	case len(never) > 0:
		return ago(now.Sub(oldest)) + "; never: " + strings.Join(slices.Compact(never), ", ")
	default:
		return ago(now.Sub(oldest))
	}
}

// ago gives an age for people.
func ago(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return "just now"
	case d < 2*day:
		return plainest(d) + " ago"
	default:
		return plural(int(d/day), "day") + " ago"
	}
}

func plainest(d time.Duration) string {
	if d < time.Hour {
		return plural(int(d/time.Minute), "minute")
	}
	return plural(int(d/time.Hour), "hour")
}

// troubles names each device in trouble once for each kind of it, and who found it so, unless all readers
// did. What a node found that is not there now does not count: it would shoot nobody.
func troubles(s api.Status, health []api.DeviceHealth) (words []string) {
	type trouble struct{ device, plug, word string }
	var (
		found   []trouble
		by      = map[trouble][]string{}
		readers = map[string][]string{} // of a device
	)
	away := func(n api.NodeStatus) bool { return n.State != api.NodeAlive && n.State != api.NodeSuspect }
	for _, h := range health {
		if slices.ContainsFunc(s.Nodes, func(n api.NodeStatus) bool { return n.Name == h.ReadBy && away(n) }) {
			continue
		}
		if !slices.Contains(readers[h.Device], h.ReadBy) {
			readers[h.Device] = append(readers[h.Device], h.ReadBy)
		}
		if h.OK {
			continue
		}
		t := trouble{h.Device, h.Plug, verdict(h)}
		if !slices.Contains(found, t) {
			found = append(found, t)
		}
		by[t] = append(by[t], h.ReadBy)
	}
	for _, t := range found {
		line := fmt.Sprintf("%s: %s", strings.TrimSpace(t.device+" "+t.plug), t.word)
		if len(by[t]) < len(readers[t.device]) {
			line += " to " + strings.Join(by[t], ", ")
		}
		words = append(words, line)
	}
	return words
}
