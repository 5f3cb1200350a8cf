package history

import (
	"slices"
	"testing"
	"time"
)

// story builds a history by hand: times in milliseconds, writes in the order in which they stand.
type story struct {
	h    History
	line int
}

func (s *story) at(ms int, e Event) *story {
	e.At = time.Duration(ms) * time.Millisecond
	if e.Kind == Write {
		s.line++
		e.Line = s.line
	}
	s.h = append(s.h, e)
	return s
}

func (s *story) boot(ms int, node, boot string) *story {
	return s.at(ms, Event{Kind: Boot, Node: node, Boot: boot})
}
func (s *story) on(ms int, kind Kind, node string) *story {
	return s.at(ms, Event{Kind: kind, Node: node})
}
func (s *story) grant(ms int, node string, token uint64) *story {
	return s.at(ms, Event{Kind: Granted, Node: node, Group: "g", Token: token})
}
func (s *story) stop(ms int, node string, token uint64) *story {
	return s.at(ms, Event{Kind: Stopped, Node: node, Group: "g", Token: token})
}
func (s *story) write(ms int, node, boot string, token uint64) *story {
	return s.at(ms, Event{Kind: Write, Node: node, Boot: boot, Group: "g", Token: token})
}

// begun: a has written under token 1 from 10 to 30.
func begun() *story {
	return new(story).boot(0, "a", "a1").boot(0, "b", "b1").grant(5, "a", 1).write(10, "a", "a1", 1).write(30, "a", "a1", 1)
}

func rules(all []Violation) (found []Rule) {
	for _, v := range all {
		found = append(found, v.Rule)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestCheck(t *testing.T) {
	shot := func() *story { return begun().on(40, Frozen, "a").on(50, Commanded, "a").on(60, SeenOff, "a") }
	tests := []struct {
		name  string
		story *story
		want  []Rule
		lock  bool // the lock would have given it so
	}{
		{"one holder", begun(), nil, true},
		{"a move", begun().stop(40, "a", 1).grant(50, "b", 2).write(60, "b", "b1", 2), nil, true},
		{"a move whose grant nobody told of", begun().stop(40, "a", 1).write(60, "b", "b1", 2), nil, true},
		{"a takeover after a shot", shot().grant(70, "b", 2).write(80, "b", "b1", 2), nil, true},
		{"a takeover after a reboot", begun().boot(60, "a", "a2").grant(70, "b", 2).write(80, "b", "b1", 2), nil, true},
		{"back to the same node after a reboot", begun().boot(60, "a", "a2").grant(70, "a", 2).write(80, "a", "a2", 2), nil, true},
		{"a takeover by an operator's word", begun().at(60, Event{Kind: Word, Node: "a", Boot: "a1"}).grant(70, "b", 2), nil, true},
		{"a restart in place", begun().stop(40, "a", 1).write(50, "a", "a1", 1).stop(60, "a", 1).grant(70, "b", 2), nil, true},
		{"a grant that nobody used", begun().stop(40, "a", 1).grant(50, "b", 2).grant(60, "a", 3).write(70, "a", "a1", 3), nil, true},

		{"two writers at once", begun().write(25, "b", "b1", 2), []Rule{OneWriter, ProofFirst}, false},
		{"the old one wakes", shot().grant(70, "b", 2).write(80, "b", "b1", 2).write(90, "a", "a1", 1), []Rule{OneWriter, OldBoot}, false},
		{"two writers at once, who both stopped", begun().stop(40, "a", 1).grant(50, "b", 2).write(60, "b", "b1", 2).stop(65, "b", 2).
			grant(70, "a", 3).write(80, "a", "a1", 3).write(90, "b", "b1", 2), []Rule{OneWriter, ProofFirst}, false},
		{"a write that is refused", begun().stop(40, "a", 1).grant(50, "b", 2).write(60, "b", "b1", 2).
			at(70, Event{Kind: Refused, Node: "a", Boot: "a1", Group: "g", Token: 1}), []Rule{OneWriter}, true},
		{"a token that falls", begun().stop(40, "a", 1).grant(50, "b", 3).write(60, "b", "b1", 3).stop(70, "b", 3).grant(80, "a", 2), []Rule{TokensGrow}, false},
		{"a token for two nodes", begun().stop(40, "a", 1).write(60, "b", "b1", 1), []Rule{TokensGrow}, false},
		{"a token for two boots", begun().boot(40, "a", "a2").write(60, "a", "a2", 1), []Rule{TokensGrow}, false},
		{"a token granted twice", begun().grant(40, "a", 1), []Rule{TokensGrow}, true},
		{"a token for two groups", begun().at(40, Event{Kind: Granted, Node: "b", Group: "other", Token: 1}), []Rule{TokensGrow}, true},
		{"silence is no proof", begun().on(40, Frozen, "a").grant(70, "b", 2).write(80, "b", "b1", 2), []Rule{ProofFirst}, false},
		{"a command is no proof", begun().on(40, Frozen, "a").on(50, Commanded, "a").grant(70, "b", 2), []Rule{ProofFirst}, false},
		{"the proof comes after the grant", begun().on(50, Commanded, "a").grant(55, "b", 2).on(60, SeenOff, "a").write(80, "b", "b1", 2), []Rule{ProofFirst}, false},
		{"another node was seen off", begun().on(60, SeenOff, "b").boot(65, "b", "b2").grant(70, "b", 2), []Rule{ProofFirst}, false},
		{"an older boot was seen off", new(story).boot(0, "a", "a0").on(1, SeenOff, "a").boot(2, "a", "a1").grant(5, "a", 1).write(10, "a", "a1", 1).grant(70, "b", 2), []Rule{ProofFirst}, false},
		{"a word that names another boot", begun().at(60, Event{Kind: Word, Node: "a", Boot: "a0"}).grant(70, "b", 2), []Rule{ProofFirst}, false},
		{"another grant was stopped", begun().stop(40, "a", 7).grant(70, "b", 2), []Rule{ProofFirst}, false},
		{"a write out of an old boot", begun().boot(60, "a", "a2").write(65, "a", "a1", 1), []Rule{OldBoot}, false},
		{"a write without power", shot().write(65, "a", "a1", 1), []Rule{OldBoot}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := Check(tt.story.h)
			want := slices.Sorted(slices.Values(tt.want))
			if !slices.Equal(rules(all), want) {
				t.Errorf("found %v, want %v", all, want)
			}
			if lock := Linearizable(tt.story.h); (len(lock) == 0) != tt.lock {
				t.Errorf("%v, want a lock's order: %v", lock, tt.lock)
			}
			slices.Reverse(tt.story.h)
			if again := rules(Check(tt.story.h)); !slices.Equal(again, want) {
				t.Errorf("recorded backwards: %v", again)
			}
		})
	}
}

// TestStorageOrder: what the clocks hide is seen in the order in which the storage took the writes.
func TestStorageOrder(t *testing.T) {
	h := begun().stop(40, "a", 1).grant(50, "b", 2).write(60, "b", "b1", 2).h
	h[len(h)-1].Line = 2
	h[4].Line = 3 // the second write of a
	if all := Check(h); !slices.Equal(rules(all), []Rule{OneWriter}) {
		t.Errorf("%v", all)
	}
}
