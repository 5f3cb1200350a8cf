package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
	"github.com/hamgr/hamgr/cluster/api"
)

// pair is a cluster of two members as real processes, each with a BMC that can cut its power, and of a witness that
// somebody else runs.
type pair struct {
	name     string
	folder   string
	net      string // its addresses are net.1 (alpha), net.2 (beta) and net.9 (the witness)
	machines map[string]*redfishsim.ProcessPower
}

const (
	pairPort    = 7846
	pairWitness = "quorum"
	pairPace    = 3 * time.Second
)

var pairMembers = []string{"alpha", "beta"}

// newPair makes the files and the BMCs. Its nodes are off.
func newPair(tb testing.TB, folder, name string, network int) *pair {
	tb.Helper()
	p := &pair{name: name, folder: filepath.Join(folder, name), net: freeNet(tb, network), machines: map[string]*redfishsim.ProcessPower{}}
	must(tb, os.Mkdir(p.folder, 0o700))
	must(tb, os.WriteFile(p.file("password"), []byte("secret of "+name), 0o600))
	out, err := exec.Command(hamgr, "init", "--key-file", p.file("key")).CombinedOutput()
	if err != nil {
		tb.Fatalf("hamgr init: %v: %s", err, out)
	}
	var b strings.Builder
	// The paths of secrets are not there for the witness, and not for it to read.
	fmt.Fprintf(&b, "[cluster]\nname = %q\nkey_file = %q\ndetection_time = %q\nport = %d\nrehearsal_age = \"0s\"\n", name, p.file("key"), pairPace, pairPort)
	fmt.Fprintf(&b, "\n[[node]]\nname = %q\naddresses = [%q]\nrole = \"witness\"\n", pairWitness, p.net+".9")
	for i, node := range pairMembers {
		log, err := os.Create(p.file(node + ".log"))
		must(tb, err)
		tb.Cleanup(func() { log.Close() })
		m := redfishsim.NewProcessPower(func(boot string) *exec.Cmd {
			cmd := exec.Command(hamgr, "run", "--config", p.file("hamgr.toml"), "--node", node, "--data-dir", p.file(node),
				"--socket", p.socket(node), "--boot-id", boot)
			cmd.Stdout, cmd.Stderr = log, log
			return cmd
		})
		p.machines[node] = m
		bmc, err := redfishsim.Start(redfishsim.Config{Address: fmt.Sprintf("%s.%d:0", p.net, 101+i), Username: "fencer", Password: "secret of " + name, Power: m})
		must(tb, err)
		tb.Cleanup(func() {
			bmc.Stop()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			must(tb, m.Off(ctx))
		})
		must(tb, os.WriteFile(p.file(node+".pem"), bmc.CAPEM(), 0o600))
		fmt.Fprintf(&b, "\n[[node]]\nname = %q\naddresses = [\"%s.%d\"]\nfencing = [[\"%s-bmc\"]]\n", node, p.net, i+1, node)
		fmt.Fprintf(&b, "\n[[fence_device]]\nname = \"%s-bmc\"\nagent = \"redfish\"\naddress = %q\nusername = \"fencer\"\npassword_file = %q\nca_file = %q\nsystem = %q\n",
			node, bmc.URL(), p.file("password"), p.file(node+".pem"), bmc.SystemURI("1"))
	}
	b.WriteString("\n[[group]]\nname = \"work\"\n\n[[group.resource]]\nname = \"sleep\"\nkind = \"command\"\nrun = [\"/bin/sleep\", \"86397\"]\n")
	must(tb, os.WriteFile(p.file("hamgr.toml"), []byte(b.String()), 0o600))
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, node := range pairMembers {
				tb.Logf("%s of %s: %s", node, name, tail(p.file(node+".log"), 12))
			}
		}
	})
	return p
}

// freeNet finds a small network of loopback addresses that nobody uses.
func freeNet(tb testing.TB, from int) string {
	tb.Helper()
	for try := range 200 {
		n := fmt.Sprintf("127.%d.%d", 200+os.Getpid()%40, (from+17*try)%256)
		if l, err := net.Listen("tcp", fmt.Sprintf("%s.1:%d", n, pairPort)); err == nil {
			l.Close()
			return n
		}
	}
	tb.Fatal("no free loopback addresses")
	return ""
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// tail is the end of a file.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n" + strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *pair) file(name string) string { return filepath.Join(p.folder, name) }

func (p *pair) socket(node string) string { return p.file(node + ".sock") }

// on switches both members on.
func (p *pair) on(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, node := range pairMembers {
		must(t, p.machines[node].On(ctx))
	}
}

// status is what a member says of the cluster, if it answers.
func (p *pair) status(ctx context.Context, node string) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := api.NewClient(api.DialUnix(p.socket(node)))
	defer client.Close()
	return client.Status(ctx)
}

// runs gives where the group runs, and under which token; empty if it does not, or if nobody that answers knows.
func (p *pair) runs(ctx context.Context) (node string, token uint64) {
	for _, member := range pairMembers {
		s, err := p.status(ctx, member)
		if err == nil && s.Quorate && len(s.Groups) == 1 && s.Groups[0].State == api.GroupRunning {
			return s.Groups[0].Node, s.Groups[0].Token
		}
	}
	return "", 0
}

// operations are those that a member knows of.
func (p *pair) operations(ctx context.Context) []api.Operation {
	for _, member := range pairMembers {
		if s, err := p.status(ctx, member); err == nil {
			return s.Operations
		}
	}
	return nil
}
