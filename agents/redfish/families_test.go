package redfish

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestFamilies: each system and each chassis of each machine's documents, served by a simulated
// BMC that obeys, is checked, switched off, read back, and switched on again.
func TestFamilies(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "documents", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	if f := os.Getenv(documentsVariable); f != "" {
		more, err := filepath.Glob(filepath.Join(f, "*"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no documents in %s: %v", f, err)
		}
		folders = append(folders, more...)
	}
	driven := 0
	for _, folder := range folders {
		for _, uri := range switchable(t, folder) {
			driven++
			t.Run(filepath.Base(folder)+strings.TrimPrefix(uri, "/redfish/v1"), func(t *testing.T) { drive(t, folder, uri) })
		}
	}
	if driven == 0 {
		t.Error("no machine among the documents")
	}
}

// switchable gives the URIs of the documents with a power to switch.
func switchable(t *testing.T, folder string) (uris []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			URI     string `json:"@odata.id"`
			Actions map[string]any
		}
		if json.Unmarshal(text, &doc) == nil && (doc.Actions[resetAction] != nil || doc.Actions[chassisResetAction] != nil) {
			uris = append(uris, doc.URI)
		}
	}
	return slices.Compact(uris)
}

func drive(t *testing.T, folder, uri string) {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Documents, c.Power = folder, power })
	o := options(bmc)
	o.System = uri
	a := open(t, o)
	ctx := within(t, 10*time.Second)
	reads := func(want agents.PowerState) {
		t.Helper()
		if r, err := a.Status(ctx, ""); err != nil || r.State != want || power.State() != (want == agents.On) {
			t.Fatalf("read %v, %v, want %v", r, err, want)
		}
	}
	if err := a.Check(ctx, ""); err != nil {
		t.Error(err)
	}
	reads(agents.On)
	if err := a.Off(ctx, ""); err != nil {
		t.Fatal(err)
	}
	reads(agents.Off)
	if err := a.On(ctx, ""); err != nil {
		t.Fatal(err)
	}
	reads(agents.On)
	sent := bmc.Resets()
	if len(sent) != 2 || sent[0] != `{"ResetType":"ForceOff"}` || sent[1] != `{"ResetType":"On"}` && sent[1] != `{"ResetType":"ForceOn"}` {
		t.Errorf("sent %v", sent)
	}
}
