package redfish

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// documentsVariable names a folder with the documents of real machines, one folder each: a
// file is called like its path under /redfish/v1, with _ for /. Without it, only our own in
// testdata/documents are read.
const documentsVariable = "HAMGR_REDFISH_DOCUMENTS"

// TestDocuments: of each machine's documents the members, the power state and a way to
// force it off are understood.
func TestDocuments(t *testing.T) {
	folders := []string{filepath.Join("testdata", "documents")}
	if f := os.Getenv(documentsVariable); f != "" {
		folders = append(folders, f)
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*", "Systems*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no documents in %s: %v", folder, err)
		}
		for _, file := range files {
			machine := filepath.Base(filepath.Dir(file))
			t.Run(machine+"/"+filepath.Base(file), func(t *testing.T) { understand(t, file) })
		}
	}
}

func understand(t *testing.T, file string) {
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	switch name := filepath.Base(file); {
	case name == "Systems.json":
		if members, next, err := parseCollection(doc); err != nil || len(members) == 0 || next != "" {
			t.Errorf("members %v, next %q, %v", members, next, err)
		}
	case strings.HasSuffix(name, "ActionInfo.json"):
		if values, err := parseActionInfo(doc); err != nil || !slices.Contains(values, "ForceOff") {
			t.Errorf("values %v, %v", values, err)
		}
	default:
		s, err := parseSystem(name, doc)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.reading(); r.State == agents.Unknown {
			t.Errorf("read %+v", r)
		}
		if _, ok := pickOff.best(s.allowed); s.target != "" && !ok && len(s.allowed) > 0 {
			t.Errorf("no ForceOff among %v", s.allowed)
		}
		if s.target != "" {
			if _, err := (address{scheme: "https", host: "bmc"}).reference(s.target); err != nil {
				t.Errorf("target %s: %v", s.target, err)
			}
		}
	}
}

// TestRoots: with the service root of each machine the agent logs in and reads a system.
func TestRoots(t *testing.T) {
	files := []string{filepath.Join("testdata", "documents", "list", "root.json")}
	if f := os.Getenv(documentsVariable); f != "" {
		more, err := filepath.Glob(filepath.Join(f, "*", "root.json"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no service roots in %s: %v", f, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(filepath.Base(filepath.Dir(file))+", "+auth, func(t *testing.T) {
				doc, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				bmc := startBMC(t, nil)
				bmc.SetFault(redfishsim.AtRoot, redfishsim.Document("application/json", string(doc)))
				o := options(bmc)
				o.Auth, o.System = auth, bmc.SystemURI("1")
				r, err := open(t, o).Status(within(t, 5*time.Second), "")
				if auth == AuthSession && !strings.Contains(string(doc), "/Sessions\"") {
					// A root without Links.Sessions (which DSP0266 demands) allows basic only.
					if !errors.Is(err, ErrNotRedfish) {
						t.Errorf("error %v", err)
					}
				} else if err != nil || r.State != agents.On {
					t.Errorf("read %v, %v", r, err)
				}
			})
		}
	}
}
