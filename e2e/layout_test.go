// Package e2e holds the tests of the whole: of whole clusters made of real processes, and of the shape
// of the source. It has no code that the product uses.
package e2e

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hamgr/hamgr/"

// root is the folder of the module, seen from this one.
const root = ".."

// importRule is a line of the tables below.
type importRule struct {
	who string   // the package that imports, or the library that is imported
	may []string // the packages it may import, or that may import it
	why string
}

// internal says which packages of this module each package may import, and why no others. A name
// that ends in /... stands for all packages below it. The first row that matches counts, and every
// package needs one.
var internal = []importRule{
	{"cluster/state", nil, "the replicated state is pure: the same commands give the same state everywhere"},
	{"cluster/scheduler", []string{"cluster/state"}, "the scheduler is a pure step from state to actions"},
	{"cluster/config", []string{"agents", "resources"}, "kinds check their own keys: the configuration knows the contracts only"},
	{"cluster/link/linktest", []string{"cluster/link"}, "the in-memory network stands in for the real one below link"},
	{"cluster/link", nil, "link moves bytes and knows nothing of their meaning"},
	{"cluster/membership", []string{"cluster/link"}, "liveness is a hint for others to weigh; it knows how to talk and nothing else"},
	{"cluster/consensus", []string{"cluster/link"}, "the log carries bytes: what they mean is the state machine's, which its caller hands in"},
	{"cluster/coordinator", []string{"cluster/scheduler", "cluster/state", "stonith/...", "agents"}, "the loop is thin: it reaches the cluster through interfaces of its own"},
	{"cluster/api", []string{"cluster/state", "stonith", "agents"}, "wire types, server and client; what they do is behind the interface that node implements"},
	{"cluster/node", []string{"cluster/...", "stonith/...", "agents/...", "resources/..."}, "the one place where the parts are joined"},
	{"stonith/watchdog", nil, "the kernel's interface and a pure decision"},
	{"stonith", []string{"agents"}, "fencing is usable without a cluster: it is given a target and a device list"},
	{"agents/agenttest", []string{"agents"}, "the conformance suite knows the contract only"},
	{"agents/registry", []string{"agents/..."}, "the list of kinds"},
	{"agents/redfish/redfishsim", nil, "a simulated device that shares code with its client would share its mistakes"},
	{"agents/ipmi/ipmipeer", []string{"agents"}, "it runs foreign programs as a BMC"},
	{"agents/snmp/snmppeer", nil, "it runs foreign programs as a PDU"},
	{"agents/...", []string{"agents"}, "an agent knows its device; neither the cluster nor another agent"},
	{"agents", nil, "the contract stands alone"},
	{"resources/registry", []string{"resources/..."}, "the list of kinds"},
	{"resources/guard", nil, "the guard serves the side that receives writes, which need not know hamgr"},
	{"resources/resourcetest", []string{"resources"}, "the conformance suite knows the contract only"},
	{"resources/internal/...", nil, "what kinds share knows no kind"},
	{"resources/...", []string{"resources", "resources/internal/..."}, "a kind knows what it manages; neither the cluster nor another kind"},
	{"resources", nil, "the contract stands alone"},
	{"cmd/hamgr/demo", []string{"cluster/node", "cluster/api", "cluster/config", "resources/guard", "agents/redfish/redfishsim"},
		"the demo is a laboratory, not a path of the product: it brings its own machines and its own judge"},
	{"cmd/hamgr/lab/election", nil, "the elections of the textbooks are functions over plain data"},
	{"cmd/hamgr/lab", []string{"cmd/hamgr/lab/election", "cluster/consensus", "cluster/link", "cluster/link/linktest", "stonith", "agents", "agents/fake", "resources", "resources/fake", "resources/guard"},
		"the lab shows the parts one by one, with nothing joined: each story drives the package that it is about"},
	{"cmd/hamgr", []string{"cluster/node", "cluster/api", "cluster/config", "stonith/watchdog", "resources/guard", "cmd/hamgr/demo", "cmd/hamgr/lab"},
		"a verb parses, calls and prints; the parts below are joined in node"},
	{"e2e/history", nil, "a judge that shared code with those who are judged would share their mistakes"},
	{"e2e/...", []string{"cluster/...", "stonith/...", "agents/...", "resources/..."}, "only tests live here"},
}

// thirdParty says where each library lives. Its types cross no other package's boundary, so it can be replaced in one place.
var thirdParty = []importRule{
	{"github.com/hashicorp/memberlist", []string{"cluster/membership"}, "SWIM"},
	{"github.com/hashicorp/go-msgpack/v2", []string{"cluster/membership"}, "memberlist's own encoding: what is judged before memberlist sees it is read as memberlist reads it"},
	{"github.com/hashicorp/go-metrics", []string{"cluster/membership", "cluster/consensus"}, "both libraries report into it"},
	{"github.com/hashicorp/go-hclog", []string{"cluster/consensus"}, "raft's logger, bridged to slog"},
	{"github.com/hashicorp/raft", []string{"cluster/consensus"}, "the replicated log"},
	{"go.etcd.io/bbolt", []string{"cluster/consensus"}, "its store"},
	{"github.com/BurntSushi/toml", []string{"cluster/config", "resources/resourcetest"}, "the configuration's syntax; the conformance suite reads the examples of kinds, and may not know config"},
	{"github.com/spf13/cobra", []string{"cmd/hamgr"}, "the command line"},
	{"github.com/spf13/pflag", []string{"cmd/hamgr"}, "the command line"},
	{"github.com/stmcginnis/gofish", []string{"agents/redfish"}, "Redfish"},
	{"github.com/bougou/go-ipmi", []string{"agents/ipmi", "agents/ipmi/ipmipeer"}, "IPMI; its server is one of the peers that the agent is tested against"},
	{"github.com/gosnmp/gosnmp", []string{"agents/snmp"}, "SNMP"},
	{"github.com/coreos/go-systemd", []string{"cluster/node", "cmd/hamgr", "resources/internal/bus"}, "notification of the service manager, and units"},
	{"github.com/godbus/dbus", []string{"resources/internal/bus", "cluster/node"}, "the transport below go-systemd; and the daemon asks systemd by its private socket, which go-systemd does not know, why it is to end"},
	{"github.com/vishvananda/netlink", []string{"resources/address"}, "interfaces, addresses and neighbours"},
	{"github.com/anishathalye/porcupine", []string{"e2e/history"}, "it finds the order in which a lock could have given the grants that were seen"},
	{"golang.org/x/sys", []string{"cluster/...", "resources/...", "stonith/watchdog", "agents/redfish/redfishsim", "cmd/hamgr", "cmd/hamgr/demo", "e2e/sim"}, "the kernel's interface, wherever the standard library ends"},
}

// pureStdlib is all that the pure packages may use. What is missing is missing on purpose: time, randomness, input and
// output, goroutines and what serves them. A replica that consults any of it decides differently from the next one.
var pureStdlib = []string{"bytes", "cmp", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "math/bits", "reflect", "slices", "sort", "strconv", "strings", "unicode", "unicode/utf8"}

var purePackages = []string{"cluster/state", "cluster/scheduler", "cmd/hamgr/lab/election"}

// rootEntries is everything that may lie in the module's root.
var rootEntries = []string{".ci", ".git", ".gitignore", "LICENSE", "Makefile", "README.md", "agents", "bin", "cluster", "cmd", "docs", "e2e", "etc", "go.mod", "go.sum", "resources", "stonith", "systemd"}

type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func goList(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages found: the list is not the module's", len(pkgs))
	}
	return pkgs
}

func matches(pattern, pkg string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == below || strings.HasPrefix(pkg, below+"/")
	}
	return pattern == pkg
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

func TestWhoMayImportWhom(t *testing.T) {
	for _, p := range goList(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		rule := slices.IndexFunc(internal, func(r importRule) bool { return matches(r.who, pkg) })
		if rule < 0 {
			t.Errorf("%s: no rule says what it may import: add one, with its reason", pkg)
			continue
		}
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module); ok {
				if !matchesAny(internal[rule].may, ours) {
					t.Errorf("%s must not import %s: %s", pkg, ours, internal[rule].why)
				}
				continue
			}
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
				checkThirdParty(t, pkg, imported)
			}
		}
	}
}

func checkThirdParty(t *testing.T, pkg, imported string) {
	for _, l := range thirdParty {
		if matches(l.who+"/...", imported) {
			if !matchesAny(l.may, pkg) {
				t.Errorf("%s must not import %s: it lives in %s (%s)", pkg, imported, strings.Join(l.may, ", "), l.why)
			}
			return
		}
	}
	t.Errorf("%s imports %s: a library needs one place to live in, and a reason", pkg, imported)
}

// TestPure holds the replicated state, the scheduler and the elections of the lab to functions of their arguments.
func TestPure(t *testing.T) {
	seen := 0
	for _, p := range goList(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if !slices.Contains(purePackages, pkg) {
			continue
		}
		seen++
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) && !slices.Contains(pureStdlib, imported) {
				t.Errorf("%s must not import %s: no time, randomness, input, output or goroutines in it", pkg, imported)
			}
		}
		for _, name := range p.GoFiles {
			checkNoConcurrency(t, filepath.Join(p.Dir, name))
		}
	}
	if seen != len(purePackages) {
		t.Errorf("found %d of the %d pure packages", seen, len(purePackages))
	}
}

func checkNoConcurrency(t *testing.T, file string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
			t.Errorf("%s: goroutines and channels have no place in a pure package", fset.Position(n.Pos()))
		}
		return true
	})
}

// TestNoGlobalLogger: a package logs into what it was given, so that many nodes fit into one test process.
func TestNoGlobalLogger(t *testing.T) {
	global := []string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log", "LogAttrs", "With"}
	for _, p := range goList(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "slog" && x.Obj == nil && slices.Contains(global, sel.Sel.Name) {
					t.Errorf("%s: slog.%s is the process's logger: use the one handed in", fset.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
}

func TestRootHoldsNothingElse(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(rootEntries, e.Name()) {
			t.Errorf("%s has no place in the root of the module", e.Name())
		}
	}
}

// TestFilesAreReadable keeps files to what a reader can hold: one thing each. Tables of tests may be longer.
func TestFilesAreReadable(t *testing.T) {
	const mostLines, mostTestLines = 500, 600
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		most := mostLines
		if strings.HasSuffix(path, "_test.go") {
			most = mostTestLines
		}
		if lines := strings.Count(string(text), "\n"); lines > most {
			t.Error(path + " has " + strconv.Itoa(lines) + " lines: split it by what it is about")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
