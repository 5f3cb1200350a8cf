// Package mutants checks that the torture of e2e/sim notices what it is there for: each mutant is hamgr with one rule of the design
// broken, and must not survive.
package mutants

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	limit     = flag.Duration("mutants", 0, "for how long each mutant is tortured at most; 0 only checks that each can be made")
	pick      = flag.String("mutant", "", "only those mutants whose names match")
	firstSeed = flag.Uint64("seed", 0, "of the first story; 0 takes one from the clock")
	tableFile = flag.String("table", "", "a file for the table of what caught each mutant")
)

// TestMutants makes each mutant, and has it tortured. It survives if nothing fails before the time is over.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows := []string{"| mutant | rule | caught after | by |\n|---|---|--:|---|\n"}
	for _, m := range table {
		if ok, err := regexp.MatchString(*pick, m.name); err != nil || !ok {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			flags := m.make(t, root)
			if *limit == 0 {
				return
			}
			took, by := m.torture(t, root, flags)
			rows = append(rows, fmt.Sprintf("| %s | %s | %.1f s | %s |\n", m.name, m.rule, took.Seconds(), by))
		})
	}
	if *limit > 0 {
		t.Logf("\n%s", strings.Join(rows, ""))
	}
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(strings.Join(rows, "")), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// make writes the mutant's files, and gives the flags with which they are built in place of the originals.
func (m mutant) make(t *testing.T, root string) (flags []string) {
	dir := t.TempDir()
	replaced := map[string]string{} // original to mutated
	for _, e := range m.edits {
		original := filepath.Join(root, e.file)
		if module, file, ok := strings.Cut(e.file, "@/"); ok {
			flags = append(flags, "-modfile", copyModule(t, root, dir, module))
			original = filepath.Join(dir, "module", file)
		}
		from := replaced[original]
		if from == "" {
			from = original
			replaced[original] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), e.old); n != 1 {
			t.Fatalf("%s has this %d times, not once: adapt the mutant\n%s", e.file, n, e.old)
		}
		write(t, replaced[original], []byte(strings.Replace(string(b), e.old, e.new, 1)))
	}
	b, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	write(t, overlay, b)
	return append(flags, "-overlay", overlay)
}

// copyModule copies a module, since files of the module cache cannot be replaced, and gives a go.mod that uses the copy.
func copyModule(t *testing.T, root, dir, module string) (modfile string) {
	if err := os.CopyFS(filepath.Join(dir, "module"), os.DirFS(folder(t, root, module))); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"go.mod": "mutant.mod", "go.sum": "mutant.sum"} {
		b, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		if from == "go.mod" {
			b = fmt.Appendf(b, "\nreplace %s => %s\n", module, filepath.Join(dir, "module"))
		}
		write(t, filepath.Join(dir, to), b)
	}
	return filepath.Join(dir, "mutant.mod")
}

func write(t *testing.T, file string, b []byte) {
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// folder is where a module's files are.
func folder(t *testing.T, root, module string) string {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("where is %s? %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// torture reports how long it took until the mutant was caught, and by what.
func (m mutant) torture(t *testing.T, root string, flags []string) (took time.Duration, by string) {
	bin := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"test", "-c", "-o", bin}, flags, []string{"./e2e/sim"})...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant is not built: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^TestTorture$", "-torture", limit.String(), "-shrink", "0s", "-seed", fmt.Sprint(*firstSeed))
	cmd.Dir = filepath.Join(root, "e2e", "sim")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err == nil {
		t.Errorf("it survived %s of torture", limit)
		return took, "**nothing**"
	}
	by = verdict(string(out))
	t.Logf("caught after %s: %s", took.Round(100*time.Millisecond), by)
	if by == "" {
		t.Errorf("nobody said why it failed:\n%s", out)
	}
	return took, by
}

// What the judges say: of safety, and of anything.
var (
	safety   = regexp.MustCompile(`S[1-8]: [^\n]*|ledger of [^\n]*|has another state than the others`)
	verdicts = regexp.MustCompile(`not within [^\n]*|panic: [^\n]*|start [a-z]+: [^\n]*|event [^\n]*`)
)

func verdict(output string) string {
	said := verdicts.FindString(output)
	if s := safety.FindString(output); s != "" {
		said = s
	}
	if len(said) > 120 {
		said = said[:120] + "..."
	}
	return strings.ReplaceAll(said, "|", "/")
}
