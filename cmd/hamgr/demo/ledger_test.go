package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ledgerOf makes a ledger out of "node token time" triples, with sequences as one process a
// node and token would write them.
func ledgerOf(t *testing.T, lines ...string) []Entry {
	t.Helper()
	seq := map[int]uint64{}
	var entries []Entry
	for _, l := range lines {
		f := strings.Fields(l)
		token, mono := uint64(f[1][0]-'0'), uint64(0)
		for _, d := range f[2] {
			mono = mono*10 + uint64(d-'0')
		}
		pid := int(token)
		seq[pid]++
		entries = append(entries, Entry{Mono: mono, Node: f[0], Boot: f[0] + "-boot", Token: token, PID: pid, Seq: seq[pid]})
	}
	return entries
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name     string
		lines    []string
		overlaps int
		gap      uint64
	}{
		{"empty", nil, 0, 0},
		{"one writer", []string{"alpha 3 10", "alpha 3 30"}, 0, 0},
		{"a clean takeover", []string{"alpha 3 10", "alpha 3 30", "beta 7 100", "beta 7 120"}, 0, 70},
		{"the old one writes on", []string{"alpha 3 10", "beta 7 100", "alpha 3 110", "alpha 3 130"}, 2, 90},
		{"it writes once more, then dies", []string{"alpha 3 10", "beta 7 100", "alpha 3 110", "beta 7 120"}, 1, 90},
		// It was stopped between looking at the clock and writing: by the clock all is well.
		{"late on the storage only", []string{"alpha 3 10", "beta 7 100", "alpha 3 11", "beta 7 120"}, 1, 89},
		// It wrote first, but its clock says that the new writer had begun by then.
		{"late by the clock only", []string{"alpha 3 10", "alpha 3 110", "beta 7 100", "beta 7 120"}, 1, 90},
		{"two takeovers", []string{"alpha 3 10", "beta 7 100", "alpha 9 150", "alpha 9 170"}, 0, 90},
		{"the first of three comes back", []string{"alpha 3 10", "beta 7 100", "gamma 9 150", "alpha 3 160", "beta 7 170"}, 2, 90},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(ledgerOf(t, tt.lines...))
			if len(v.Overlaps) != tt.overlaps || v.Writes != len(tt.lines) || len(v.Lost) != 0 {
				t.Errorf("overlaps %v, writes %d, lost %v; want %d overlaps", v.Overlaps, v.Writes, v.Lost, tt.overlaps)
			}
			if v.Gap != tt.gap {
				t.Errorf("gap %d, want %d", v.Gap, tt.gap)
			}
		})
	}
}

func TestJudgeMissesNoLostLine(t *testing.T) {
	whole := ledgerOf(t, "alpha 3 10", "alpha 3 20", "alpha 3 30", "beta 7 40", "beta 7 50")
	if v := Judge(append(whole[:1:1], whole[2:]...)); len(v.Lost) != 1 || v.Lost[0].Seq != 3 {
		t.Errorf("a missing line was not seen: %v", v.Lost)
	}
	if v := Judge(append(whole[:2:2], whole[1:]...)); len(v.Lost) != 1 || v.Lost[0].Seq != 2 {
		t.Errorf("a repeated line was not seen: %v", v.Lost)
	}
}

func TestReadLedger(t *testing.T) {
	good := Entry{Mono: 5, Node: "alpha", Boot: "b1", Token: 2, PID: 77, Seq: 1}
	path := filepath.Join(t.TempDir(), "ledger")
	if entries, err := ReadLedger(path); err != nil || len(entries) != 0 {
		t.Fatalf("a ledger that nobody wrote to: %v, %v", entries, err)
	}
	for text, want := range map[string]int{
		"":                   0,
		good.String() + "\n": 1,
		good.String() + "\n" + good.String() + "\n":      2,
		good.String() + "\n" + good.String():             -1,
		good.String() + "\n" + good.String()[:30] + "\n": -1,
		good.String() + "\n\n":                           -1,
		good.String() + " \n":                            -1,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := ReadLedger(path)
		if (err != nil) != (want < 0) || err == nil && len(entries) != want {
			t.Errorf("%q: %v, %v; want %d entries (-1: an error)", text, entries, err, want)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(Entry{Mono: 1, Node: "alpha", Boot: "b", Token: 1 << 40, PID: 12, Seq: 9}.String())
	f.Add("00000000000000000001 alpha b 00000000000000000002 3")
	f.Add("1 alpha b 2 3 4")
	f.Fuzz(func(t *testing.T, line string) {
		e, err := ParseEntry(line)
		if err == nil && e.String() != line {
			t.Errorf("%q was read as %q", line, e)
		}
	})
}
