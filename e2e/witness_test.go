package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// nobody is the user that the witness runs as.
const nobody = 65534

// witnessed is what `hamgr witness status` says of one cluster.
type witnessed struct {
	Name, Cluster, Node, State, Error, Coordinator, Socket string
	Quorate                                                bool
	Voters, Present                                        int
}

// witnessProcess is one `hamgr witness`, without privileges.
type witnessProcess struct {
	t             testing.TB
	dir, data     string
	runDir        string
	cmd           *exec.Cmd
	log           string
	ended         chan struct{}
	ownedByNobody func(path string)
}

func newWitnessProcess(t testing.TB, folder string) *witnessProcess {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("to become nobody, this test needs root")
	}
	w := &witnessProcess{t: t, dir: filepath.Join(folder, "clusters"), data: filepath.Join(folder, "data"), runDir: filepath.Join(folder, "run"), log: filepath.Join(folder, "witness.log")}
	w.ownedByNobody = func(path string) { must(t, os.Chown(path, nobody, nobody)) }
	must(t, os.Chmod(filepath.Dir(hamgr), 0o755)) // it has to get at the program
	must(t, os.Chmod(folder, 0o755))
	for _, dir := range []string{w.dir, w.data, w.runDir} {
		must(t, os.Mkdir(dir, 0o755))
	}
	w.ownedByNobody(w.data)
	w.ownedByNobody(w.runDir)
	return w
}

// add puts a cluster's file into the folder, with a key, as an operator would.
func (w *witnessProcess) add(config, key, name string) {
	w.t.Helper()
	copyFile(w.t, key, filepath.Join(w.dir, name+".key"), 0o600)
	w.ownedByNobody(filepath.Join(w.dir, name+".key"))
	copyFile(w.t, config, filepath.Join(w.dir, name+".toml"), 0o644)
}

func copyFile(tb testing.TB, from, to string, mode fs.FileMode) {
	tb.Helper()
	text, err := os.ReadFile(from)
	must(tb, err)
	must(tb, os.WriteFile(to, text, mode))
	must(tb, os.Chmod(to, mode))
}

func (w *witnessProcess) start(args ...string) {
	w.t.Helper()
	log, err := os.Create(w.log)
	must(w.t, err)
	w.cmd = exec.Command(hamgr, append([]string{"witness", "--dir", w.dir, "--data-dir", w.data, "--run-dir", w.runDir}, args...)...)
	w.cmd.Stdout, w.cmd.Stderr = log, log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	must(w.t, w.cmd.Start())
	log.Close()
	w.ended = make(chan struct{})
	go func() {
		_ = w.cmd.Wait()
		close(w.ended)
	}()
	w.t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.ended
		if w.t.Failed() {
			w.t.Logf("witness: %s", tail(w.log, 40))
		}
	})
}

func (w *witnessProcess) signal(sig syscall.Signal) { must(w.t, w.cmd.Process.Signal(sig)) }

// status asks as root does, and gives the exit status too.
func (w *witnessProcess) status(ctx context.Context) (map[string]witnessed, int) {
	w.t.Helper()
	out, err := exec.CommandContext(ctx, hamgr, "witness", "status", "--json", "--run-dir", w.runDir).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	var got struct{ Clusters []witnessed }
	if err := json.Unmarshal(out, &got); err != nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	all := map[string]witnessed{}
	for _, c := range got.Clusters {
		all[c.Name] = c
	}
	if exit != nil {
		return all, exit.ExitCode()
	}
	return all, 0
}

// until asks until all is as it should be; why says what is not.
func (w *witnessProcess) until(ctx context.Context, what string, why func(all map[string]witnessed, status int) string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for {
		missing := why(w.status(ctx))
		if missing == "" {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%s: %s", what, missing)
		}
		wait(w.t, context.WithoutCancel(ctx), 200*time.Millisecond)
	}
}

// whole says what is missing in the named clusters for all three voters to be there.
func whole(all map[string]witnessed, names ...string) string {
	for _, n := range names {
		if c := all[n]; !c.Quorate || c.Present != 3 || c.Node != pairWitness {
			return fmt.Sprintf("%s: %+v", n, c)
		}
	}
	return ""
}

// free reports whether nobody listens at the pair's witness address.
func (p *pair) free() error {
	at := fmt.Sprintf("%s.9:%d", p.net, pairPort)
	tcp, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", at)
	return errors.Join(err, tcp.Close(), closed(udp))
}

func closed(c net.PacketConn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// TestWitnessOfSeveralClusters: one process without privileges votes for three clusters of two. In each a member
// dies, and the other one takes over, which it could not without the vote. A cluster with a wrong key harms no other;
// clusters come and go while it runs.
func TestWitnessOfSeveralClusters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	folder, err := os.MkdirTemp(demo.DefaultParent(), "e2e-witness-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	var pairs []*pair
	for i, name := range []string{"one", "two", "three", "late"} {
		pairs = append(pairs, newPair(t, folder, name, 10*i))
	}
	three, late := pairs[:3], pairs[3]
	names := []string{"one", "two", "three"}

	w := newWitnessProcess(t, folder)
	for _, p := range three {
		p.on(t, ctx)
		w.add(p.file("hamgr.toml"), p.file("key"), p.name)
	}
	late.on(t, ctx)
	w.add(late.file("hamgr.toml"), three[0].file("key"), late.name) // another cluster's key
	w.start()
	await(t, ctx, "the members of late do without the witness", func() bool { node, _ := late.runs(ctx); return node != "" })
	w.until(ctx, "three clusters with their witness", func(all map[string]witnessed, _ int) string { return whole(all, names...) })
	runsAsNobody(t, w)
	if all, status := w.status(ctx); status != 1 || all["late"].Quorate || all["late"].Present > 1 {
		t.Errorf("with a key of another cluster, status %d, it has to do with %+v", status, all["late"])
	}

	var before []struct {
		node  string
		token uint64
	}
	for _, p := range three {
		var at struct {
			node  string
			token uint64
		}
		await(t, ctx, "the group of "+p.name+" runs", func() bool { at.node, at.token = p.runs(ctx); return at.node != "" })
		before = append(before, at)
	}
	for i, p := range three {
		must(t, p.machines[before[i].node].Signal(ctx, syscall.SIGKILL))
	}
	for i, p := range three {
		await(t, ctx, "takeover in "+p.name, func() bool {
			node, token := p.runs(ctx)
			return node != "" && token > before[i].token
		})
		shot := p.operations(ctx)
		if len(shot) == 0 && p.machines[before[i].node].Boot() == "" {
			t.Errorf("%s: no operation is remembered", p.name)
		}
		for _, o := range shot {
			if o.Executor == pairWitness {
				t.Errorf("%s: the witness was to shoot: %+v", p.name, o)
			}
		}
	}

	// With the right key it is served at once.
	w.add(late.file("hamgr.toml"), late.file("key"), late.name)
	w.signal(syscall.SIGHUP)
	w.until(ctx, "a fourth cluster", func(all map[string]witnessed, _ int) string { return whole(all, "late") })
	w.until(ctx, "all four", func(all map[string]witnessed, status int) string {
		if status != 0 {
			return fmt.Sprintf("status %d: %+v", status, all)
		}
		return whole(all, "one", "two", "three", "late")
	})

	// One goes: it alone, in order.
	must(t, os.Remove(filepath.Join(w.dir, "two.toml")))
	w.signal(syscall.SIGHUP)
	w.until(ctx, "one cluster less", func(all map[string]witnessed, _ int) string {
		if _, there := all["two"]; there {
			return fmt.Sprintf("still %+v", all["two"])
		}
		return whole(all, "one", "three", "late")
	})
	must(t, three[1].free())
	must(t, os.Chmod(filepath.Join(w.dir, "one.toml"), 0)) // not to be read by nobody
	w.signal(syscall.SIGHUP)
	w.until(ctx, "a file that cannot be read is told of, and its cluster served as before", func(all map[string]witnessed, status int) string {
		if !strings.Contains(all["one"].Error, "permission") || status != 1 {
			return fmt.Sprintf("status %d: %+v", status, all["one"])
		}
		return whole(all, "one", "three", "late")
	})

	w.signal(syscall.SIGTERM)
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		t.Fatal("the witness does not end")
	}
	if !w.cmd.ProcessState.Success() {
		t.Errorf("the witness ended with %v", w.cmd.ProcessState)
	}
	for _, p := range pairs {
		must(t, p.free())
		if _, err := os.Stat(filepath.Join(w.runDir, p.name, "hamgr.sock")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("socket of %s: %v", p.name, err)
		}
	}
	if _, status := w.noWitness(ctx); status != 3 {
		t.Errorf("hamgr witness status without a witness ends with %d", status)
	}
}

func (w *witnessProcess) noWitness(ctx context.Context) (string, int) {
	out, err := exec.CommandContext(ctx, hamgr, "witness", "status", "--run-dir", w.runDir).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// runsAsNobody holds the process to what it was started with: the user, and no capability.
func runsAsNobody(t *testing.T, w *witnessProcess) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	must(t, err)
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", nobody, nobody, nobody, nobody), "CapEff:\t0000000000000000"} {
		if !slices.Contains(lines, want) {
			t.Errorf("not %q in %s", want, text)
		}
	}
}

// await polls until it is so.
func await(t testing.TB, ctx context.Context, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for !is() {
		if ctx.Err() != nil {
			t.Fatalf("not within 90 s: %s", what)
		}
		wait(t, context.WithoutCancel(ctx), 100*time.Millisecond)
	}
}
