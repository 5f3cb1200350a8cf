package redfishsim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readDocuments reads the documents of a machine. Those with a power state become systems (a
// chassis only if it has a reset action), the others are served as they are.
func readDocuments(folder string, power Power) ([]*system, map[string]map[string]any, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("no documents in %s: %w", folder, os.ErrNotExist)
	}
	documents := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		uri, _ := doc["@odata.id"].(string)
		documents[strings.TrimSuffix(uri, "/")] = doc
	}
	if power == nil {
		power = NewSwitch(true)
	}
	var systems []*system
	for uri, doc := range documents {
		if s := fromDocument(uri, doc, documents, power); s != nil {
			systems = append(systems, s)
			delete(documents, uri)
		}
	}
	return systems, documents, nil
}

// fromDocument makes a system of a document that is one.
func fromDocument(uri string, doc map[string]any, all map[string]map[string]any, power Power) *system {
	kind, _ := doc["@odata.type"].(string)
	chassis := strings.HasPrefix(kind, "#Chassis.")
	if !chassis && !strings.HasPrefix(kind, "#ComputerSystem.") {
		return nil
	}
	s := newSystem(System{ID: uri[strings.LastIndex(uri, "/")+1:], Chassis: chassis, Power: power})
	s.path, s.document = uri, doc
	actions, _ := doc["Actions"].(map[string]any)
	reset, ok := actions[s.action()].(map[string]any)
	if !ok {
		s.NotHost = true
		if chassis {
			return nil
		}
		return s
	}
	s.Target, _ = reset["target"].(string)
	s.Allowable = texts(reset["ResetType@Redfish.AllowableValues"])
	if info, ok := reset["@Redfish.ActionInfo"].(string); ok {
		params, _ := all[strings.TrimSuffix(info, "/")]["Parameters"].([]any)
		for _, p := range params {
			if p, _ := p.(map[string]any); p["Name"] == "ResetType" {
				s.ActionInfo = texts(p["AllowableValues"])
			}
		}
	}
	return s
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
