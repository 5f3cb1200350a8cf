package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/node"
)

// pages are all documents of the project.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	return append(files, filepath.Join(root, "README.md"))
}

var tomlBlock = regexp.MustCompile("(?ms)^```toml\n(.*?)^```$")

// TestSnippetsAreValid: every configuration that a document shows is whole and valid.
func TestSnippetsAreValid(t *testing.T) {
	found := 0
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, block := range tomlBlock.FindAllSubmatch(text, -1) {
			found++
			name := fmt.Sprintf("%s (block %d)", filepath.Base(file), n+1)
			c, err := config.Parse(name, block[1], node.Kinds())
			if err != nil {
				t.Error(err)
				continue
			}
			for _, w := range c.Warnings {
				// A BMC alone is where people begin, and what the page is not about.
				if filepath.Base(file) == "install.md" && strings.Contains(w.Msg, "share the power") {
					continue
				}
				t.Errorf("doubtful advice: %s", w)
			}
		}
	}
	if found == 0 {
		t.Error("no document shows a configuration")
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// TestLinksLeadSomewhere: what a document points to exists. Addresses elsewhere are not tried.
func TestLinksLeadSomewhere(t *testing.T) {
	found := 0
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), link[1])); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d links found", found)
	}
}

// TestPhrasesExist: the log lines that a document names are written by the code.
func TestPhrasesExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "failover.md"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, p := range goList(t) {
		for _, name := range p.GoFiles {
			code, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(p.Dir, "cmd") { // the demo quotes them itself
				source.Write(code)
			}
		}
	}
	phrases := regexp.MustCompile("`((?:node|group|resource|fencing|off|gossip) [a-z ]+)`").FindAllStringSubmatch(string(text), -1)
	if len(phrases) < 10 {
		t.Fatalf("only %d phrases found", len(phrases))
	}
	for _, p := range phrases {
		if !strings.Contains(source.String(), `"`+p[1]+`"`) {
			t.Errorf("no code logs %q", p[1])
		}
	}
}
