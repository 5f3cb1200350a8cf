package demo

import (
	"fmt"
	"strconv"
	"time"
)

// The moments of a failover, in the order in which they are expected.
const (
	momentFault     = "fault"
	momentOrdered   = "move ordered" // in place of a fault
	momentStopping  = "stop ordered"
	momentStopped   = "stopped"
	momentSuspected = "suspected"
	momentDead      = "dead"
	momentCommitted = "committed"
	momentOff       = "off ordered"
	momentReadBack  = "off read back"
	momentProven    = "proven off"
	momentGranted   = "granted"
	momentStarted   = "started"
	momentReturned  = "returned"
)

// recorder turns the daemons' log lines into the moments of one failover.
type recorder struct {
	victim  string
	boot    string // the victim's boot at the fault
	old     Holder
	fault   time.Time
	moments []Moment
	seen    map[string]bool
}

func newRecorder(victim, boot string, old Holder, fault time.Time, first Moment) *recorder {
	r := &recorder{victim: victim, boot: boot, old: old, fault: fault, seen: map[string]bool{}}
	r.add(first)
	return r
}

// record looks at one line, and gives the moment that it stands for if this is its first.
func (r *recorder) record(e Event) (Moment, bool) {
	if e.At.Before(r.fault) {
		return Moment{}, false
	}
	what, detail := r.interpret(e)
	if what == "" || r.seen[what] {
		return Moment{}, false
	}
	return r.add(Moment{What: what, At: e.At.Sub(r.fault), Seen: e.Observer, Detail: detail}), true
}

func (r *recorder) add(m Moment) Moment {
	m.AtMS = float64(m.At.Microseconds()) / 1000
	r.seen[m.What] = true
	r.moments = append(r.moments, m)
	return m
}

// interpret knows the phrases of the daemons' logs. What the victim says about itself does
// not count until it is back.
func (r *recorder) interpret(e Event) (what, detail string) {
	aboutVictim := e.Text("node") == r.victim && e.Observer != r.victim
	newGrant := e.Text("group") == groupName && e.Uint("token") > r.old.Token
	oldGrant := e.Text("group") == groupName && e.Uint("token") == r.old.Token
	switch e.Message {
	case "node suspected":
		if aboutVictim {
			return momentSuspected, r.victim
		}
	case "node dead":
		if aboutVictim {
			return momentDead, r.victim
		}
	case "fencing ordered":
		if aboutVictim {
			return momentCommitted, fmt.Sprintf("fence %s in boot %s, operation %d, because %s", r.victim, short(e.Text("boot")), e.Uint("op"), e.Text("reason"))
		}
	case "off ordered":
		if aboutVictim {
			return momentOff, e.Text("device")
		}
	case "off read back":
		if aboutVictim {
			return momentReadBack, e.Text("device")
		}
	case "node proven off":
		if aboutVictim {
			return momentProven, fmt.Sprintf("%s in boot %s", r.victim, short(e.Text("boot")))
		}
	case "group to be stopped":
		if oldGrant {
			return momentStopping, fmt.Sprintf("%s on %s: %s", groupName, r.victim, e.Text("reason"))
		}
	case "group stopped":
		if oldGrant {
			return momentStopped, fmt.Sprintf("%s on %s, all of it, under token %d", groupName, r.victim, r.old.Token)
		}
	case "group granted":
		if newGrant {
			return momentGranted, fmt.Sprintf("%s to %s with token %d", groupName, e.Text("node"), e.Uint("token"))
		}
	case "group started":
		if newGrant {
			return momentStarted, fmt.Sprintf("%s on %s", groupName, e.Text("node"))
		}
	case "node joined":
		if boot := e.Text("boot"); aboutVictim && boot != "" && boot != r.boot {
			return momentReturned, fmt.Sprintf("%s in boot %s, holding nothing", r.victim, short(boot))
		}
	}
	return "", ""
}

// short is enough of a boot ID to tell two apart.
func short(boot string) string {
	if len(boot) > 8 {
		return boot[:8]
	}
	return boot
}

// String is the moment as it is shown while it happens.
func (m Moment) String() string {
	at := strconv.FormatFloat(m.At.Seconds(), 'f', 3, 64)
	return fmt.Sprintf("%8s s  %-14s %s", at, m.What, m.Detail)
}
