package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestChangeCrossesTheWire(t *testing.T) {
	on := true
	asked := ChangeRequest{Verb: ChangeMove, Group: "db", Node: "alpha", Away: true, ForMS: 7_200_000, By: "anna", DryRun: true}
	want := ChangeResult{
		Verb: ChangeMove, Node: "alpha", Group: "db", DryRun: true, Changed: true, Standby: &on, Holds: []string{"db"},
		Steps:  []ChangeStep{{"db", "alpha", StepStop, "moved away from alpha by anna"}, {"db", "beta", StepStart, "nobody holds it"}},
		Groups: []ChangedGroup{{"db", "beta", "", 17}, {"web", "", "it runs with db, which does not run", 0}},
	}
	c := overUnix(t, fake{change: func(_ context.Context, req ChangeRequest) (ChangeResult, error) {
		if req != asked {
			t.Errorf("asked %+v, want %+v", req, asked)
		}
		return want, nil
	}})
	got, err := c.Change(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	want.Schema = Schema
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What tools read of a change of a node is there, though empty; what is of nodes alone is not there for a group.
func TestChangeResultsKeepTheirFields(t *testing.T) {
	off := false
	node, err := json.Marshal(ChangeResult{Verb: ChangeOnline, Node: "a", Standby: &off, Holds: []string{}})
	if err != nil || !strings.Contains(string(node), `"standby":false,"holds":[]`) {
		t.Errorf("%s, %v", node, err)
	}
	group, err := json.Marshal(ChangeResult{Verb: ChangeClear, Group: "db"})
	if err != nil || strings.Contains(string(group), "standby") || strings.Contains(string(group), "holds") {
		t.Errorf("%s, %v", group, err)
	}
}

func TestChangeRequestsAreValidated(t *testing.T) {
	for body, want := range map[string]string{ // "" for valid
		`{"verb":"standby","node":"a"}`:                                        "",
		`{"verb":"standby"}`:                                                   "a node name",
		`{"verb":"standby","node":"a","group":"g"}`:                            "is of no group",
		`{"verb":"online","node":"a"}`:                                         "",
		`{"verb":"enable","group":"g"}`:                                        "",
		`{"verb":"enable","group":"g","node":"a"}`:                             "is of no node",
		`{"verb":"disable"}`:                                                   "a group name",
		`{"verb":"maintenance_on"}`:                                            "",
		`{"verb":"maintenance_off","node":"a"}`:                                "",
		`{"verb":"maintenance_on","group":"g"}`:                                "",
		`{"verb":"maintenance_on","group":"g","node":"a"}`:                     "of a node or of a group",
		`{"verb":"maintenance","on":true}`:                                     `unknown field "on"`,
		`{"verb":"maintenance"}`:                                               "none of clear, disable, enable",
		`{}`:                                                                   "none of clear",
		`{"verb":"move","group":"g","node":"a"}`:                               "",
		`{"verb":"move","group":"g","node":"a","away":true}`:                   "",
		`{"verb":"move","group":"g","away":true,"for_ms":60000}`:               "",
		`{"verb":"move","group":"g","end":true}`:                               "",
		`{"verb":"move","group":"g"}`:                                          "move g where?",
		`{"verb":"move","group":"g","for_ms":5}`:                               "move g where?",
		`{"verb":"move","group":"g","end":true,"node":"a"}`:                    "ordered or ended",
		`{"verb":"move","group":"g","end":true,"away":true}`:                   "ordered or ended",
		`{"verb":"move","group":"g","end":true,"for_ms":5}`:                    "ordered or ended",
		`{"verb":"move","group":"g","node":"a","for_ms":-1}`:                   "cannot last",
		`{"verb":"move","group":"g","node":"a","for_ms":9e18}`:                 "cannot",
		`{"verb":"move","group":"g","node":"a","for_ms":604800000}`:            "",
		`{"verb":"move","group":"g","node":"a","for_ms":604800001}`:            "7 days (168h) at most",
		`{"verb":"restart","group":"g","token":7}`:                             "",
		`{"verb":"restart","group":"g","node":"a"}`:                            "is of no node",
		`{"verb":"restart","group":"g","for_ms":7}`:                            "only a move",
		`{"verb":"clear","group":"g","node":"a"}`:                              "",
		`{"verb":"clear","group":"g","token":7}`:                               "only a restart",
		`{"verb":"clear","group":"` + strings.Repeat("g", 256) + `"}`:          "255 bytes",
		`{"verb":"clear","group":"g","by":"` + strings.Repeat("a", 256) + `"}`: "the operator's name",
	} {
		_, err := decodeRequest[ChangeRequest]([]byte(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// A daemon that hangs up in the middle may have done it; a dry run changes nothing, whatever became of it.
func TestChangeWithoutAnAnswer(t *testing.T) {
	l := newPipes("beta")
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				conn.Read(make([]byte, 10))
				conn.Close()
			}(conn)
		}
	}()
	c := client(t, l.dial)
	for dry, want := range map[bool]Code{false: ErrUnknownOutcome, true: ErrTimeout} {
		_, err := c.Change(t.Context(), ChangeRequest{Verb: ChangeEnable, Group: "db", DryRun: dry})
		if !errors.Is(err, want) || CodeOf(err) != want {
			t.Errorf("dry run %v: %v is %v", dry, err, CodeOf(err))
		}
	}
	if _, err := c.Change(t.Context(), ChangeRequest{Verb: ChangeEnable}); !errors.Is(err, ErrInvalid) {
		t.Errorf("sent %v", err)
	}
	// What is no answer leaves it open too.
	nonsense := newPipes("beta")
	start(t, nonsense, Face{[]route{{"POST", pathChange, maxRequest, longestRead, func(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
		return writeBody(w, http.StatusOK, "text/plain", []byte("done"))
	}}}})
	if _, err := client(t, nonsense.dial).Change(t.Context(), ChangeRequest{Verb: ChangeEnable, Group: "db"}); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("nonsense: %v", err)
	}
}

func FuzzDecodeChangeRequest(f *testing.F) {
	f.Add([]byte(`{"verb":"move","group":"db","node":"alpha","for_ms":7200000,"by":"anna"}`))
	f.Add([]byte(`{"verb":"maintenance_on"}`))
	f.Add([]byte(`{"verb":"restart","group":"db","token":18446744073709551615,"dry_run":true}`))
	f.Add([]byte(`{"verb":"clear","group":"\ud800"} []`))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := decodeRequest[ChangeRequest](data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v is not invalid", data, err)
			}
			return
		}
		if req.Validate() != nil {
			t.Errorf("%q gave an invalid request %+v", data, req)
		}
		if req.Node == "" && req.Group == "" && req.Verb != ChangeMaintenanceOn && req.Verb != ChangeMaintenanceOff {
			t.Errorf("%q is of nothing: %+v", data, req)
		}
	})
}
