package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	agentkinds "github.com/hamgr/hamgr/agents/registry"
	resourcekinds "github.com/hamgr/hamgr/resources/registry"
)

// sampleKinds are the kinds that hamgr is built with.
func sampleKinds() Kinds {
	return Kinds{Agents: agentkinds.Default(), Resources: resourcekinds.Default()}
}

// Each sample is valid as it stands, and warns only of what it says itself.
func TestSamples(t *testing.T) {
	for name, want := range map[string]struct {
		members  []string
		voters   int
		warnings string
	}{
		"hamgr.toml":    {[]string{"alpha", "beta", "gamma"}, 3, "the fence devices of alpha, beta, gamma share the power of their node"},
		"two-node.toml": {[]string{"alpha", "beta"}, 2, "two voters, the fence devices of alpha, beta share the power of their node"},
		"witness.toml":  {[]string{"alpha", "beta"}, 3, "the fence devices of alpha, beta share the power of their node"},
	} {
		cfg := parseSample(t, name, readSample(t, name))
		if !slices.Equal(cfg.Members(), want.members) || len(cfg.Voters()) != want.voters || len(cfg.Groups) != 1 || len(cfg.Groups[0].Resources) != 3 {
			t.Errorf("%s: %+v", name, cfg)
		}
		var warnings []string
		for _, w := range cfg.Warnings {
			warnings = append(warnings, strings.SplitN(w.Msg, ":", 2)[0])
		}
		if strings.Join(warnings, ", ") != want.warnings {
			t.Errorf("%s: %v", name, cfg.Warnings)
		}
	}
	if files, _ := filepath.Glob("../../etc/*.toml"); len(files) != 3 {
		t.Errorf("the samples are %v: add the new one here", files)
	}
}

func readSample(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../etc/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parseSample(t *testing.T, name, doc string) *Config {
	t.Helper()
	cfg, err := Parse(name, []byte(doc), sampleKinds())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A key in a comment of the sample exists, and shows its default where it has one.
func TestCommentedKeys(t *testing.T) {
	doc := readSample(t, "hamgr.toml")
	whole := parseSample(t, "hamgr.toml", doc)
	lines := regexp.MustCompile(`(?m)^# ([a-z0-9_]+) = ("[^"]*"|[0-9]+|true)( +#.*)?$`).FindAllStringSubmatchIndex(doc, -1)
	if len(lines) < 14 {
		t.Fatalf("only %d commented keys found", len(lines))
	}
	for _, at := range lines {
		key := doc[at[2]:at[3]]
		cfg, err := Parse("hamgr.toml", []byte(doc[:at[0]]+doc[at[2]:]), sampleKinds())
		switch key {
		case "ca_file", "pin_sha256": // their values are not there, but they are
			if err == nil || strings.Contains(err.Error(), "unknown key") {
				t.Errorf("%s: %v", key, err)
			}
		case "system", "insecure": // they have no default to show
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
		default:
			if err != nil || !reflect.DeepEqual(cfg, whole) {
				t.Errorf("%s: the default is another one, or: %v", key, err)
			}
		}
	}
}

// A key that every device or resource has would never reach a kind that has it too.
func TestKindsLeaveCommonKeysAlone(t *testing.T) {
	kinds := sampleKinds()
	device, resource := defaultDevice, defaultResource
	for name, k := range kinds.Agents {
		common := fieldsOf(&device)
		for _, f := range fieldsOf(k.Options()) {
			if slices.ContainsFunc(common, func(c field) bool { return c.key == f.key }) {
				t.Errorf("agent %s has a key %s, which every device has", name, f.key)
			}
			if f.doc == "" {
				t.Errorf("agent %s: %s has no doc", name, f.key)
			}
		}
	}
	for name, k := range kinds.Resources {
		common := fieldsOf(&resource)
		for _, f := range fieldsOf(k.Options()) {
			if slices.ContainsFunc(common, func(c field) bool { return c.key == f.key }) {
				t.Errorf("kind %s has a key %s, which every resource has", name, f.key)
			}
			if f.doc == "" {
				t.Errorf("kind %s: %s has no doc", name, f.key)
			}
		}
	}
}
