package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// BenchmarkWitnessIdle prints what one witness process costs with 1, 5 and 20 idle clusters: memory, and the part of one
// processor. In each cluster there are a member and another witness beside it.
func BenchmarkWitnessIdle(b *testing.B) {
	for _, n := range []int{1, 5, 20} {
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			for b.Loop() {
				rss, cpu := idleWitness(b, n)
				b.ReportMetric(rss, "MiB")
				b.ReportMetric(100*cpu, "%cpu")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func idleWitness(b *testing.B, n int) (mib, cpu float64) {
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	folder, err := os.MkdirTemp(demo.DefaultParent(), "e2e-cost-")
	must(b, err)
	defer os.RemoveAll(folder)
	var ws []*witnessProcess
	for _, name := range []string{"w1", "w2"} {
		at := filepath.Join(folder, name)
		must(b, os.Mkdir(at, 0o755))
		must(b, os.Chmod(folder, 0o755))
		ws = append(ws, newWitnessProcess(b, at))
	}
	for i := range n {
		p := newPair(b, folder, fmt.Sprintf("c%d", i), i)
		text, err := os.ReadFile(p.file("hamgr.toml"))
		must(b, err)
		// beta becomes the second witness, and has a process of the same kind.
		two := strings.Replace(string(text), fmt.Sprintf("addresses = [\"%s.2\"]\n", p.net), fmt.Sprintf("addresses = [\"%s.2\"]\nrole = \"witness\"\n", p.net), 1)
		must(b, os.WriteFile(p.file("hamgr.toml"), []byte(two), 0o600))
		must(b, p.machines["alpha"].On(ctx))
		for _, w := range ws {
			w.add(p.file("hamgr.toml"), p.file("key"), p.name)
		}
	}
	ws[0].start("--node", pairWitness)
	ws[1].start("--node", "beta")
	ws[0].until(ctx, "all clusters", func(all map[string]witnessed, _ int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("c%d", i))
		}
		return whole(all, names...)
	})
	wait(b, ctx, 5*time.Second)
	const span = 20 * time.Second
	before := processTime(b, ws[0].cmd.Process.Pid)
	wait(b, ctx, span)
	cpu = (processTime(b, ws[0].cmd.Process.Pid) - before).Seconds() / span.Seconds()
	return resident(b, ws[0].cmd.Process.Pid), cpu
}

// resident is the memory of a process in MiB (VmRSS of proc_pid_status(5)).
func resident(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			must(b, err)
			return float64(kb) / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// processTime is what a process has used of the processors (utime and stime of proc_pid_stat(5), in hundredths of a second).
func processTime(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, err := strconv.Atoi(f[11])
	must(b, err)
	system, err := strconv.Atoi(f[12])
	must(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
