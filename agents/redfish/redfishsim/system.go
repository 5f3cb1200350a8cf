package redfishsim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// system is a System at work.
type system struct {
	System
	path     string
	document map[string]any // of a real machine; nil = our own

	mu      sync.Mutex
	shown   string // PowerState during a transition; empty = the power's own
	changes int    // counts resets; the ETag follows it
	abandon context.CancelFunc
}

func newSystem(s System) *system {
	if s.ID == "" {
		s.ID = "1"
	}
	if s.Power == nil {
		s.Power = NewSwitch(true)
	}
	path := systemsPath + "/" + s.ID
	if s.Chassis {
		path = chassisPath + "/" + s.ID
	}
	if s.Target == "" {
		s.Target = path + "/Actions/" + strings.TrimPrefix(s.action(), "#")
	}
	return &system{System: s, path: path, abandon: func() {}}
}

// action is the name of the reset action in the document.
func (s *System) action() string {
	if s.Chassis {
		return "#Chassis.Reset"
	}
	return "#ComputerSystem.Reset"
}

func (s *system) uri() string { return s.path }

func (s *system) powerState() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.shown != "":
		return s.shown
	case s.Power.State():
		return "On"
	default:
		return "Off"
	}
}

func (s *system) etag() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf(`W/"%08X"`, s.changes)
}

func (b *BMC) rootDocument() map[string]any {
	return map[string]any{
		"@odata.id": rootPath, "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.11.0",
		"Systems":        map[string]string{"@odata.id": systemsPath},
		"Chassis":        map[string]string{"@odata.id": chassisPath},
		"AccountService": map[string]string{"@odata.id": accountsPath},
		"SessionService": map[string]string{"@odata.id": rootPath + "/SessionService"},
		"Links":          map[string]any{"Sessions": map[string]string{"@odata.id": sessionsPath}},
	}
}

func (b *BMC) systemDocument(s *system) map[string]any {
	m := b.behaviour()
	doc := s.basis()
	doc["PowerState"] = s.powerState()
	if s.UUID != "" {
		doc["UUID"] = s.UUID
	}
	if s.Serial != "" {
		doc["SerialNumber"] = s.Serial
	}
	if m.PowerState != "" {
		doc["PowerState"] = json.RawMessage(m.PowerState)
	}
	if m.NoPowerState {
		delete(doc, "PowerState")
	}
	if _, ok := doc["@odata.etag"]; ok || m.ETag != ETagIgnored {
		doc["@odata.etag"] = s.etag()
	}
	if !s.NotHost && s.document == nil {
		reset := map[string]any{"target": s.Target}
		if s.Allowable != nil {
			reset["ResetType@Redfish.AllowableValues"] = s.Allowable
		}
		if s.ActionInfo != nil {
			reset["@Redfish.ActionInfo"] = s.uri() + "/ResetActionInfo"
		}
		doc["Actions"] = map[string]any{s.action(): reset}
	}
	return doc
}

// basis is the document apart from what the state needs.
func (s *system) basis() map[string]any {
	switch {
	case s.document != nil:
		return maps.Clone(s.document)
	case s.Chassis:
		return map[string]any{
			"@odata.id": s.uri(), "@odata.type": "#Chassis.v1_5_1.Chassis", "Id": s.ID, "Name": "Chassis", "ChassisType": "Blade",
		}
	}
	return map[string]any{
		"@odata.id": s.uri(), "@odata.type": "#ComputerSystem.v1_16_0.ComputerSystem", "Id": s.ID, "Name": "System",
		"SystemType": "Physical",
	}
}

func (s *system) actionInfoDocument() map[string]any {
	return map[string]any{
		"@odata.id": s.uri() + "/ResetActionInfo", "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
		"Id": "ResetActionInfo", "Name": "Reset Action Info",
		"Parameters": []map[string]any{{"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": s.ActionInfo}},
	}
}

// offers reports whether a ResetType is taken. A BMC that lists none takes all.
func (s *system) offers(resetType string) bool {
	if len(s.Allowable) == 0 && len(s.ActionInfo) == 0 {
		return true
	}
	return slices.Contains(s.Allowable, resetType) || slices.Contains(s.ActionInfo, resetType)
}

// reset serves the reset action.
func (b *BMC) reset(w http.ResponseWriter, r *http.Request, s *system) {
	m := b.behaviour()
	var body struct{ ResetType string }
	err := json.NewDecoder(r.Body).Decode(&body)
	match := r.Header.Get("If-Match")
	on := s.Power.State()
	turnsOff, turnsOn := body.ResetType == "ForceOff", body.ResetType == "On" || body.ResetType == "ForceOn"
	switch {
	case !m.mayReset():
		refuse(w, http.StatusForbidden, "Base.1.8.InsufficientPrivilege")
	case err != nil:
		refuse(w, http.StatusBadRequest, "Base.1.8.MalformedJSON")
	case m.ETag == ETagRequired && match == "":
		refuse(w, http.StatusPreconditionRequired, "Base.1.8.PreconditionRequired")
	case m.ETag == ETagMissing && match == "", m.ETag != ETagIgnored && match != "" && match != "*" && match != s.etag():
		refuse(w, http.StatusPreconditionFailed, "Base.1.8.PreconditionFailed")
	case !s.offers(body.ResetType):
		refuse(w, http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported")
	case !on && turnsOff && m.OffWhenOff != 0:
		refuse(w, m.OffWhenOff, "Base.1.8.ResourceInUse")
	case on && turnsOn && m.OnWhenOn != 0:
		refuse(w, m.OnWhenOn, "Base.1.8.ResourceInUse")
	default:
		if !m.Lie {
			if err := b.carryOut(s, body.ResetType, m); err != nil {
				refuse(w, http.StatusInternalServerError, "Base.1.8.InternalError")
				return
			}
		}
		b.acknowledge(w, m)
	}
}

func (b *BMC) acknowledge(w http.ResponseWriter, m Mode) {
	switch m.Answer {
	case 0, http.StatusNoContent:
		w.WriteHeader(http.StatusNoContent)
	case http.StatusAccepted:
		b.mu.Lock()
		uri := fmt.Sprintf("%s/%d", tasksPath, len(b.tasks)+1)
		b.tasks[uri] = 0
		b.mu.Unlock()
		answerNew(w, m.Answer, uri, m.Location, map[string]any{"@odata.type": "#Task.v1_4_0.Task", "Id": "1", "Name": "Reset", "TaskState": "Running"})
	default:
		answer(w, m.Answer, map[string]any{"error": map[string]any{"code": "Base.1.8.Success", "message": "Done."}})
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
