package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

var faultAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// logLine makes one line of a daemon's log, so many milliseconds after the fault.
func logLine(observer string, ms int, msg, attrs string) Event {
	at := faultAt.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano)
	return parseEvent(observer, fmt.Sprintf(`{"time":%q,"level":"INFO","msg":%q,%s}`, at, msg, attrs))
}

func TestRecorderTellsAFailover(t *testing.T) {
	rec := newRecorder("beta", "old-boot", Holder{Node: "beta", Token: 12}, faultAt, Moment{What: momentFault, Detail: "beta froze"})
	for _, e := range []Event{
		logLine("alpha", -5, "node dead", `"node":"beta"`),                      // before the fault
		logLine("beta", 3, "node dead", `"node":"beta"`),                        // the victim's own word
		logLine("gamma", 10, "node suspected", `"node":"alpha"`),                // another node
		logLine("alpha", 600, "node suspected", `"node":"beta"`),                // 1
		logLine("gamma", 610, "node suspected", `"node":"beta"`),                // again
		logLine("alpha", 1010, "node dead", `"node":"beta"`),                    // 2
		logLine("alpha", 1012, "fencing ordered", `"node":"beta","op":44`),      // 3
		logLine("alpha", 1013, "off ordered", `"node":"beta","device":"b-bmc"`), // 4
		logLine("alpha", 1150, "off read back", `"node":"beta"`),                // 5
		logLine("alpha", 1155, "node proven off", `"node":"beta"`),              // 6
		logLine("alpha", 1156, "group granted", `"group":"ledger","node":"beta","token":12`),
		logLine("alpha", 1156, "group granted", `"group":"other","node":"gamma","token":50`),
		logLine("alpha", 1160, "group granted", `"group":"ledger","node":"gamma","token":50`), // 7
		logLine("alpha", 1180, "group started", `"group":"ledger","node":"gamma","token":50`), // 8
		logLine("alpha", 1190, "node joined", `"node":"beta","boot":"old-boot"`),              // no new boot
		logLine("alpha", 2000, "node joined", `"node":"beta","boot":"new-boot"`),              // 9
	} {
		rec.record(e)
	}
	r := Report{Schema: Schema, Timeline: rec.moments, Old: Holder{"beta", 12}, New: Holder{"gamma", 50}, Writes: 200, OK: true}
	r.figures()
	var got []string
	for _, m := range r.Timeline {
		got = append(got, fmt.Sprintf("%s@%.0f", m.What, m.AtMS))
	}
	const want = "fault@0 suspected@600 dead@1010 committed@1012 off ordered@1013 off read back@1150 proven off@1155 granted@1160 started@1180 returned@2000"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("timeline:\n%s\nwant:\n%s", s, want)
	}
	for name, f := range map[string]struct {
		got  *int64
		want int64
	}{
		"detect": {r.Detect, 1010}, "fence": {r.Fence, 145}, "grant": {r.Grant, 5}, "start": {r.Start, 20}, "total": {r.Total, 1180}, "returned": {r.Returned, 2000},
	} {
		if f.got == nil || *f.got != f.want {
			t.Errorf("%s: %s, want %d", name, ms(f.got), f.want)
		}
	}
	if *r.Detect+*r.Fence+*r.Grant+*r.Start != *r.Total {
		t.Error("the parts are not the whole")
	}

	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"1180 ms in all", "12 (beta) -> 50 (gamma)", "verdict    OK"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("no %q in:\n%s", words, &text)
		}
	}
}

// TestReportContract: the fields that other programs read, also when little was reached.
func TestReportContract(t *testing.T) {
	var out bytes.Buffer
	r := Report{Schema: Schema, Scenario: "freeze", Wrong: []string{"nothing happened"}}
	r.figures()
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(out.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("schema scenario ok detect_ms fence_ms grant_ms start_ms total_ms proof old new ledger_writes overlapping_writes refused_stale_writes") {
		if _, ok := object[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	for _, key := range []string{"old", "new"} {
		holder, ok := object[key].(map[string]any)
		if _, node := holder["node"]; !ok || !node || holder["token"] == nil {
			t.Errorf("%s is %v", key, object[key])
		}
	}
	if object["ok"] != false || object["total_ms"] != nil || object["schema"] != 1.0 {
		t.Errorf("an empty run: %v", object)
	}
}

func TestRecorderTellsAMove(t *testing.T) {
	rec := newRecorder("beta", "boot", Holder{Node: "beta", Token: 12}, faultAt, Moment{What: momentOrdered, Detail: "ledger to gamma"})
	for _, e := range []Event{
		logLine("alpha", 3, "group to be stopped", `"group":"other","token":12`),
		logLine("alpha", 4, "group to be stopped", `"group":"ledger","token":12,"reason":"moved to gamma by anna"`),
		logLine("alpha", 5, "group stopped", `"group":"ledger","node":"gamma","token":11`), // an older one
		logLine("alpha", 40, "group stopped", `"group":"ledger","node":"beta","token":12`),
		logLine("alpha", 42, "group granted", `"group":"ledger","node":"gamma","token":13`),
		logLine("alpha", 50, "group started", `"group":"ledger","node":"gamma","token":13`),
	} {
		rec.record(e)
	}
	r := Report{Schema: Schema, Timeline: rec.moments}
	r.figures()
	for name, f := range map[string]struct {
		got  *int64
		want int64
	}{"stop": {r.Stop, 40}, "grant": {r.Grant, 2}, "start": {r.Start, 8}, "total": {r.Total, 50}} {
		if f.got == nil || *f.got != f.want {
			t.Errorf("%s: %s, want %d", name, ms(f.got), f.want)
		}
	}
	if r.Detect != nil || r.Fence != nil || r.Returned != nil {
		t.Errorf("nobody failed: %+v", r)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "move       50 ms in all: stop 40 ms, grant 2 ms, start 8 ms") {
		t.Errorf("%v\n%s", err, &b)
	}
}
