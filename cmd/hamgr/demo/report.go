package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Schema is the version of the report's JSON: fields are added under the same version, and
// none is renamed, removed or given another meaning.
const Schema = 1

// Holder is a group's grant.
type Holder struct {
	Node  string `json:"node"`
	Token uint64 `json:"token"`
}

// Moment is one thing that happened during the failover.
type Moment struct {
	What string `json:"what"`
	// At is the time since the fault.
	At     time.Duration `json:"-"`
	AtMS   float64       `json:"at_ms"`
	Seen   string        `json:"seen_by"` // the node whose log says so; empty for the demo itself
	Detail string        `json:"detail"`
}

// Report is the end of a demo. Times are milliseconds; those that were not reached are null.
type Report struct {
	Schema   int    `json:"schema"`
	Scenario string `json:"scenario"`
	// OK: the group was taken over with a higher token, after proof, and the ledger has no
	// overlapping write.
	OK bool `json:"ok"`
	// Wrong is everything that speaks against OK, in words.
	Wrong []string `json:"wrong,omitempty"`

	DetectionTimeMS int64 `json:"detection_time_ms"`
	// Detect is from the fault to the first verdict that the node is dead, Fence from there to the proof, Grant from
	// there to the committed grant, Start from there to the group's start. Total is their sum.
	Detect *int64 `json:"detect_ms"`
	Fence  *int64 `json:"fence_ms"`
	Grant  *int64 `json:"grant_ms"`
	Start  *int64 `json:"start_ms"`
	Total  *int64 `json:"total_ms"`
	// Stop is, of a move, from the order to the report of a clean stop; Grant begins there.
	Stop *int64 `json:"stop_ms"`
	// Returned is from the fault until the node was back with a new boot.
	Returned *int64 `json:"returned_ms"`
	// WriteGap is how long nobody wrote, by the ledger alone.
	WriteGap int64 `json:"write_gap_ms"`

	Proof string `json:"proof"`
	Old   Holder `json:"old"`
	New   Holder `json:"new"`
	// Coordinator is the coordinator before and after.
	Coordinator [2]string `json:"coordinator"`

	Writes  int `json:"ledger_writes"`
	Overlap int `json:"overlapping_writes"`
	Refused int `json:"refused_stale_writes"`

	Timeline []Moment `json:"timeline"`
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// moment gives the first one of that name.
func (r *Report) moment(what string) (Moment, bool) {
	for _, m := range r.Timeline {
		if m.What == what {
			return m, true
		}
	}
	return Moment{}, false
}

// figures fills in the times from the timeline.
func (r *Report) figures() {
	between := func(from, to string) *int64 {
		a, okA := r.moment(from)
		b, okB := r.moment(to)
		if !okA || !okB {
			return nil
		}
		ms := b.At.Milliseconds() - a.At.Milliseconds()
		return &ms
	}
	r.Detect = between(momentFault, momentDead)
	r.Fence = between(momentDead, momentProven)
	r.Grant = between(momentProven, momentGranted)
	r.Start = between(momentGranted, momentStarted)
	r.Total = between(momentFault, momentStarted)
	if _, ok := r.moment(momentOrdered); ok {
		r.Stop = between(momentOrdered, momentStopped)
		r.Grant = between(momentStopped, momentGranted)
		r.Total = between(momentOrdered, momentStarted)
	}
	r.Returned = between(momentFault, momentReturned)
}

// WriteText writes the timeline and the verdict for a person.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MS\tEVENT\tSEEN BY\tDETAIL")
	for _, m := range r.Timeline {
		fmt.Fprintf(table, "%.0f\t%s\t%s\t%s\n", m.AtMS, m.What, dash(m.Seen), m.Detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	switch {
	case r.Total != nil && r.Stop != nil:
		fmt.Fprintf(&b, "move       %s in all: stop %s, grant %s, start %s\n", ms(r.Total), ms(r.Stop), ms(r.Grant), ms(r.Start))
	case r.Total != nil:
		fmt.Fprintf(&b, "takeover   %s in all: detect %s, fence %s, grant %s, start %s (detection_time %d ms)\n",
			ms(r.Total), ms(r.Detect), ms(r.Fence), ms(r.Grant), ms(r.Start), r.DetectionTimeMS)
	}
	if r.New.Token != 0 {
		fmt.Fprintf(&b, "token      %d (%s) -> %d (%s)\n", r.Old.Token, r.Old.Node, r.New.Token, r.New.Node)
	}
	fmt.Fprintf(&b, "proof      %s\n", dash(r.Proof))
	fmt.Fprintf(&b, "ledger     %d writes, %d overlapping, %d stale writes refused; nobody wrote for %d ms\n", r.Writes, r.Overlap, r.Refused, r.WriteGap)
	if r.OK {
		fmt.Fprintf(&b, "verdict    OK: at no time did two nodes write\n")
	}
	for _, wrong := range r.Wrong {
		fmt.Fprintf(&b, "verdict    FAILED: %s\n", strings.ReplaceAll(wrong, "\n", "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ms(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%d ms", *n)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
