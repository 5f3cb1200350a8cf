package state

import (
	"cmp"
	"maps"
	"slices"
)

// What is remembered of a node's rehearsals.
const (
	keepRehearsals = 32 // devices
	keepPlugs      = 8  // of each
	maxPlug        = 64 // bytes of a plug's name, as JSON
)

// rehearsed notes which devices really switched the node off, in a rehearsal or because it was needed: those that
// were found off, or that somebody else's command preceded, have shown nothing.
func (t *step) rehearsed(n *Node, o *Operation, devices []DeviceResult) {
	n.Rehearsals = cloneOrMake(n.Rehearsals)
	for _, d := range devices[:min(len(devices), keepDevices)] {
		if d.State != "off" || d.WasOff || d.Commands == 0 || d.Error != "" {
			continue
		}
		name := clip(d.Device, maxText)
		r := n.Rehearsals[name]
		if r.Op != o.ID {
			r = Rehearsal{Op: o.ID, Level: d.Level, At: t.at, Executor: o.Executor}
		}
		r.OffMS = max(r.OffMS, d.TookMS)
		if d.Plug != "" && len(r.Plugs) < keepPlugs {
			r.Plugs = append(r.Plugs, clip(d.Plug, maxPlug))
		}
		n.Rehearsals[name] = r
	}
	for len(n.Rehearsals) > keepRehearsals {
		delete(n.Rehearsals, oldest(n.Rehearsals))
	}
}

func oldest(all map[string]Rehearsal) string {
	names := slices.Sorted(maps.Keys(all))
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(all[a].Op, all[b].Op) })
}
