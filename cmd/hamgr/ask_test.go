package main

import (
	"strings"
	"testing"
)

// A confirmation is taken only with the very name of the node.
func TestConfirmDemandsTheName(t *testing.T) {
	for answer, want := range map[string]int{
		"gamma\n": exitDone, " gamma \n": exitDone,
		"y\n": exitFailed, "yes\n": exitFailed, "Gamma\n": exitFailed, "gamma beta\n": exitFailed, "beta\n": exitFailed, "\n": exitFailed, "": exitFailed,
	} {
		status, out, talk := ask(t, "healthy", answer, "fence", "confirm", "gamma", "--reason", "cords pulled")
		if status != want {
			t.Errorf("answer %q: status %d, want %d", answer, status, want)
		}
		if done := strings.Contains(out, "counts as down"); done != (want == exitDone) {
			t.Errorf("answer %q: confirmed %v", answer, done)
		}
		for _, say := range []string{"gamma is alive, and holds db.", "two nodes write to the same data and ruin it", "Type the node's name to confirm: "} {
			if !strings.Contains(talk, say) {
				t.Errorf("not said: %q, but: %q", say, talk)
			}
		}
	}
}

func TestConfirmTakesNoWrongName(t *testing.T) {
	for _, args := range [][]string{{"--typed", "beta"}, {"--yes"}, {"--typed", "Gamma"}} {
		status, out, _ := ask(t, "healthy", "gamma\n", append([]string{"fence", "confirm", "gamma", "--reason", "r"}, args...)...)
		if status != exitUsage || out != "" {
			t.Errorf("%v: status %d, %q", args, status, out)
		}
	}
}

func TestRehearseAsks(t *testing.T) {
	for answer, want := range map[string]int{"y\n": exitDone, "n\n": exitFailed, "": exitFailed} {
		status, out, talk := ask(t, "standby", answer, "fence", "rehearse", "gamma", "--level", "1")
		if status != want || strings.Contains(out, "proven") != (want == exitDone) {
			t.Errorf("answer %q: status %d, want %d: %s", answer, status, want, out)
		}
		if !strings.Contains(talk, "it will be switched off and on again 1 time, by level 1 (gamma-bmc). Cut its power? [y/N] ") {
			t.Errorf("asked: %q", talk)
		}
	}
}
