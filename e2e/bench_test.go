package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// What a failover may take, from the fault until the group runs elsewhere.
func medianBound(detection time.Duration) time.Duration {
	return detection*11/10 + 300*time.Millisecond
}
func worstBound(detection time.Duration) time.Duration { return detection*5/4 + 600*time.Millisecond }

// ownBound is what of it may be hamgr's own work after the detection.
const ownBound = 300 * time.Millisecond

// slack is how far beyond a bound a failover must be for the benchmark to fail: a busy machine
// is no defect. What was measured is printed either way.
const slack = 3

func own(f demo.Failover) time.Duration   { return f.Fence + f.Grant + f.Start }
func total(f demo.Failover) time.Duration { return f.Detect + own(f) }

// BenchmarkFailover strikes the group's holder again and again, N times while it coordinates the cluster and
// N times while another node does, killed and frozen in turn.
func BenchmarkFailover(b *testing.B) {
	for _, detection := range []time.Duration{3 * time.Second, time.Second} {
		for _, who := range []string{"coordinator", "other"} {
			b.Run(detection.String()+"/"+who, func(b *testing.B) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
				defer cancel()
				c, at := startCluster(b, ctx, detection)
				var samples []demo.Failover
				for n := range b.N {
					at = align(b, ctx, c, at, who == "coordinator")
					s, err := c.Fail(ctx, at, []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP}[n%2])
					if err != nil {
						b.Fatal(err)
					}
					samples = append(samples, s)
					if at, err = c.Ready(ctx, time.Minute); err != nil {
						b.Fatal(err)
					}
				}
				show(b, detection, who, samples)
				entries, err := c.Ledger()
				if err != nil {
					b.Fatal(err)
				}
				if v := demo.Judge(entries); len(v.Overlaps) != 0 || len(v.Lost) != 0 {
					b.Fatalf("overlapping writes %v, lost %v", v.Overlaps, v.Lost)
				}
			})
		}
	}
}

// align moves the coordination, by restarting daemons, until the group's holder coordinates, or does not: on
// SIGTERM a coordinator hands over, to the same voter every time; when the other two are killed
// at once, the one that ran on is the first to stand for election.
func align(b *testing.B, ctx context.Context, c *demo.Cluster, at demo.Placement, coordinates bool) demo.Placement {
	for n := range 40 {
		if (at.Coordinator == at.Holder) == coordinates {
			return at
		}
		restart, sig := []string{at.Coordinator}, syscall.SIGTERM
		if coordinates && n%2 == 0 {
			sig = syscall.SIGKILL
			for _, node := range []string{"alpha", "beta", "gamma"} {
				if node != at.Holder && node != at.Coordinator {
					restart = append(restart, node)
				}
			}
		}
		for _, node := range restart {
			if err := c.RestartDaemon(ctx, node, sig); err != nil {
				b.Fatal(err)
			}
		}
		var err error
		if at, err = c.Ready(ctx, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
	b.Fatal("the roles do not come about")
	return at
}

func show(b *testing.B, detection time.Duration, who string, all []demo.Failover) {
	measure := func(f func(demo.Failover) time.Duration) (median, worst time.Duration) {
		var d []time.Duration
		for _, s := range all {
			d = append(d, f(s))
		}
		slices.Sort(d)
		return d[len(d)/2], d[len(d)-1]
	}
	fmt.Printf("detection_time %s, %s lost, %d failovers: median (worst)\n", detection, who, len(all))
	for _, part := range []struct {
		name string
		f    func(demo.Failover) time.Duration
	}{
		{"detect", func(f demo.Failover) time.Duration { return f.Detect }},
		{"fence", func(f demo.Failover) time.Duration { return f.Fence }},
		{"grant", func(f demo.Failover) time.Duration { return f.Grant }},
		{"start", func(f demo.Failover) time.Duration { return f.Start }},
	} {
		median, worst := measure(part.f)
		fmt.Printf("  %-7s %5d ms  (%d)\n", part.name, median.Milliseconds(), worst.Milliseconds())
	}
	_, ownWorst := measure(own)
	median, worst := measure(total)
	fmt.Printf("  own     worst %d ms, bound %d ms%s\n", ownWorst.Milliseconds(), ownBound.Milliseconds(), missed(ownWorst, ownBound))
	fmt.Printf("  total   %5d ms  (%d), bounds %d ms (%d)%s%s\n", median.Milliseconds(), worst.Milliseconds(),
		medianBound(detection).Milliseconds(), worstBound(detection).Milliseconds(), missed(median, medianBound(detection)), missed(worst, worstBound(detection)))
	b.ReportMetric(float64(median.Milliseconds()), "median-ms")
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
	if worst > slack*worstBound(detection) {
		b.Errorf("a failover took %s", worst)
	}
}

func missed(got, bound time.Duration) string {
	if got > bound {
		return "  MISSED"
	}
	return ""
}

// BenchmarkPause lets a healthy node stand still for 90 % of the detection time, 50 times for each N,
// the holder, the coordinator and the third node in turn. None may be shot.
func BenchmarkPause(b *testing.B) {
	const detection, pauses = time.Second, 50
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	c, at := startCluster(b, ctx, detection)
	nodes := []string{"alpha", "beta", "gamma"}
	done := 0
	for n := 0; done < pauses*b.N; n++ {
		took, err := c.Pause(ctx, nodes[n%len(nodes)], detection*9/10)
		if err != nil {
			b.Fatal(err)
		}
		if took > detection*95/100 {
			fmt.Printf("a pause took %s: not counted\n", took)
		} else {
			done++
		}
		now, err := c.Ready(ctx, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if now.Token != at.Token {
			b.Fatalf("pause %d moved the group: %+v, then %+v", done, at, now)
		}
		wait(b, ctx, detection)
	}
	shots := c.Events.All(func(e demo.Event) bool { return e.Message == "fencing ordered" })
	fmt.Printf("%d pauses of 90 %% of %s: %d nodes shot\n", done, detection, len(shots))
	b.ReportMetric(float64(len(shots)), "shots")
	if len(shots) != 0 {
		b.Error("a healthy node was shot")
	}
}

// BenchmarkIdle measures what a daemon costs while nothing happens.
func BenchmarkIdle(b *testing.B) {
	const over, maxResident, maxShare = 30 * time.Second, 60 << 20, 0.01
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	c, _ := startCluster(b, ctx, 3*time.Second)
	wait(b, ctx, 5*time.Second) // whatever the start left to do
	for range b.N {
		before := map[string]time.Duration{}
		nodes := []string{"alpha", "beta", "gamma"}
		for _, n := range nodes {
			before[n], _ = usage(b, c, n)
		}
		wait(b, ctx, over)
		for _, n := range nodes {
			cpu, resident := usage(b, c, n)
			share := (cpu - before[n]).Seconds() / over.Seconds()
			fmt.Printf("%s idle for %s: %.2f %% of a core (bound %.0f %%), %d MiB resident (bound %d MiB)\n",
				n, over, 100*share, 100*maxShare, resident>>20, maxResident>>20)
			b.ReportMetric(100*share, n+"-cpu-%")
			b.ReportMetric(float64(resident>>20), n+"-MiB")
			if share > slack*maxShare || resident > slack*maxResident {
				b.Errorf("%s: too much", n)
			}
		}
	}
}

// usage is a daemon's processor time and resident memory so far (proc_pid_stat(5)).
func usage(b *testing.B, c *demo.Cluster, node string) (cpu time.Duration, resident int64) {
	pid, err := c.DaemonPID(node)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	number := func(field int) int64 { // counted as in the manual
		n, err := strconv.ParseInt(fields[field-3], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	const ticks = 100 // USER_HZ, the same on every Linux that Go runs on
	return time.Duration(number(14)+number(15)) * time.Second / ticks, number(24) * int64(os.Getpagesize())
}
