package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
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

// Without a cluster, power is cut only after a clear yes, too.
func TestDirectAsks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hamgr.toml")
	bmc, password, err := bmcOf(file, "")
	if err != nil {
		t.Fatal(err)
	}
	defer bmc.Stop()
	t.Setenv("BMC_PASSWORD", password)
	for answer, want := range map[string]int{"n\n": exitFailed, "": exitFailed, "gamma\n": exitFailed, "y\n": exitDone} {
		for _, action := range []string{"off", "reboot"} {
			before := len(bmc.Resets())
			status, _, talk := ask(t, "noquorum", answer, "fence", action, "gamma", "--direct", "--config", file)
			if cut := len(bmc.Resets()) > before; status != want || answer != "y\n" && cut {
				t.Errorf("answer %q: status %d, want %d; power was cut: %v", answer, status, want, cut)
			}
			warned, asked := strings.Index(talk, "WARNING: --direct"), strings.Index(talk, "gamma is fenced by gamma-bmc; cut its power without the cluster? [y/N] ")
			if warned < 0 || asked < warned {
				t.Errorf("asked: %q", talk)
			}
		}
	}
}

func TestOperationNoteSaysThingsOnce(t *testing.T) {
	for want, o := range map[string]api.Operation{
		"":                     {},
		"word: cords pulled":   {Reason: "cords pulled", Proof: "word: cords pulled"},
		"silent; read off":     {Reason: "silent", Proof: "read off"},
		"WAITS: brake; silent": {Reason: "silent", Waits: "brake"},
		"refused":              {Note: "refused", Error: "refused"},
	} {
		if got := operationNote(o); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	long := strings.Repeat("unreachable: ", 40)
	if got := brief(long); len([]rune(got)) != 240 || !strings.HasSuffix(got, "…") || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) {
		t.Errorf("%q", got)
	}
	if fits := strings.Repeat("ö", 240); brief(fits) != fits {
		t.Errorf("%q", brief(fits))
	}
}
