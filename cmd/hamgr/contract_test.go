package main

import (
	"encoding"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
)

// docs/cli.md lists every field that a verb prints, and no other: whoever changes an
// output changes the contract, and should notice.
func TestOutputsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	for verb, output := range map[string]any{
		"status":               api.Status{},
		"fence status NODE":    api.FenceStatus{},
		"fence test [NODE]":    api.FenceTest{},
		"fence rehearse NODE":  rehearsal{},
		"fence history [NODE]": api.FenceHistory{},
		"fence confirm NODE":   api.FenceResult{},
		"group list":           groupsOutput{},
		"group show GROUP":     groupOutput{},
		"node list":            nodesOutput{},
		"group enable, disable, move, restart, clear; node standby, online; maintenance": changeOutput{},
		"fence off NODE, fence on NODE, fence reboot NODE":                               api.FenceResult{},
		"config check [FILE]":                  checkOutput{},
		"config diff [FILE] [--against FILE2]": diffOutput{},
		"config apply [FILE]":                  applyOutput{},
		"quorum force NODE":                    api.ForceResult{},
		"watchdog status":                      watchdogOutput{},
		"agent list":                           agentsOutput{},
		"agent describe AGENT[:PROGRAM]":       agentOutput{},
		"resource kinds":                       kindsOutput{},
		"resource describe KIND[:PROGRAM]":     kindOutput{},
		"init":                                 initOutput{},
		"key list":                             keyListOutput{},
		"key add, key use KEY, key drop KEY":   keyChangeOutput{},
		"lab [STORY]":                          labOutput{},
		"version":                              versionOutput{},
		"witness status":                       witnessOutput{},
	} {
		_, section, ok := strings.Cut(string(page), "\n## hamgr "+verb+"\n")
		if !ok {
			t.Errorf("docs/cli.md has no section on hamgr %s", verb)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		documented := map[string]bool{}
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			documented[m[1]] = true
		}
		printed := map[string]bool{}
		fields(reflect.TypeOf(output), "", printed)
		for _, f := range slices.Sorted(maps.Keys(printed)) {
			if !documented[f] {
				t.Errorf("hamgr %s prints %s, which docs/cli.md does not list", verb, f)
			}
		}
		for _, f := range slices.Sorted(maps.Keys(documented)) {
			if !printed[f] {
				t.Errorf("docs/cli.md lists %s, which hamgr %s does not print", f, verb)
			}
		}
	}
}

// fields collects the paths of a type's JSON fields.
func fields(t reflect.Type, path string, into map[string]bool) {
	switch {
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		into[path] = true
		return
	case t.Kind() == reflect.Pointer:
		fields(t.Elem(), path, into)
	case t.Kind() == reflect.Slice:
		fields(t.Elem(), path+"[]", into)
	case t.Kind() == reflect.Map:
		fields(t.Elem(), path+"{}", into)
	case t.Kind() == reflect.Struct:
		if path != "" {
			path += "."
		}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields(f.Type, path+name, into)
		}
	default:
		into[path] = true
	}
}

func TestExitStatusesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != 10 {
		t.Errorf("docs/cli.md lists %d codes, want 10", len(rows))
	}
	for _, m := range rows {
		if got := strconv.Itoa(statusOf(api.Code(m[1]))); got != m[2] {
			t.Errorf("code %s: docs/cli.md says status %s, it is %s", m[1], m[2], got)
		}
	}
}
