package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStatusCrossesTheWire(t *testing.T) {
	age := int64(12)
	want := Status{
		Cluster: "web", Node: "alpha", Version: "v1", Quorate: true, Coordinator: "beta", Formed: true, Tolerates: 1,
		Nodes: []NodeStatus{{Name: "alpha", Role: "member", State: NodeAlive, Boot: "b1", ContactAgeMS: &age, Applied: 7,
			Links:   []LinkStatus{{Address: "10.0.0.11:7846", UDPAgeMS: &age, Error: "refused"}},
			Fencing: FencingStatus{Levels: [][]string{{"a", "b"}, {"c"}}, LastProven: time.Unix(1e9, 0).UTC()}}},
		Groups: []GroupStatus{{Name: "db", State: GroupRunning, Node: "alpha", Token: 1 << 63, Since: time.Unix(1e9, 0).UTC(),
			Resources: []ResourceStatus{{Name: "fs", Kind: "filesystem", State: "active"}}}},
		Operations: []Operation{{Op: 9, Node: "gamma", Action: ActionOff, Phase: PhaseDone, Proof: "off", TookMS: 5}},
		Failures:   []Failure{{Group: "db", Node: "gamma", Reason: "died", Count: 2}},
		Problems:   []Problem{{SeverityAlarm, "t", "c"}},
		Dropped:    map[string]uint64{"bad seal": 3},
	}
	c := overUnix(t, fake{status: func(context.Context) (Status, error) { return want, nil }})
	got, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want.Schema = Schema
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFenceStatusNamesItsNode(t *testing.T) {
	const name = "a b/../&=ü"
	c := overUnix(t, fake{fenceStatus: func(_ context.Context, node string) (FenceStatus, error) {
		return FenceStatus{Node: node, Power: "unknown", Plugs: []PlugStatus{{Level: 1, Device: "d", State: "unknown", Error: "no answer"}}}, nil
	}})
	got, err := c.FenceStatus(t.Context(), name)
	if err != nil || got.Node != name || got.Schema != Schema || len(got.Plugs) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.FenceStatus(t.Context(), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("no node: %v", err)
	}
}

// TestErrorsKeepTheirMeaning sends every code over the wire, bare, wrapped and as *Error.
func TestErrorsKeepTheirMeaning(t *testing.T) {
	codes := []Code{ErrNoCoordinator, ErrNoQuorum, ErrUnsafe, ErrNotFound, ErrTimeout, ErrUnknownOutcome, ErrInvalid, ErrFailed, ErrInternal}
	for _, code := range codes {
		cases := map[string]error{
			"bare":    code,
			"wrapped": fmt.Errorf("fence alpha: %w", code),
			"typed":   fmt.Errorf("fence alpha: %w", &Error{Code: code, Message: "because", Hint: "do this"}),
		}
		for name, sent := range cases {
			t.Run(string(code)+"/"+name, func(t *testing.T) {
				c := overUnix(t, fake{status: func(context.Context) (Status, error) { return Status{}, sent }})
				_, err := c.Status(t.Context())
				if !errors.Is(err, code) {
					t.Errorf("%v is not %v", err, code)
				}
				if err.Error() != sent.Error() {
					t.Errorf("message %q, want %q", err, sent)
				}
				if e := AsError(err); name == "typed" && e.Hint != "do this" {
					t.Errorf("hint %q", e.Hint)
				}
				for _, other := range codes {
					if other != code && errors.Is(err, other) {
						t.Errorf("%v is %v too", err, other)
					}
				}
			})
		}
	}
}

func TestErrorsWithoutCode(t *testing.T) {
	for _, tt := range []struct {
		sent error
		want Code
	}{
		{errors.New("disk on fire"), ErrInternal},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), ErrTimeout},
		// The daemon asked another one and did not reach it; its own asker did reach a daemon.
		{fmt.Errorf("forward to beta: %w", &Error{Code: ErrUnreachable, Message: "refused"}), ErrNoCoordinator},
	} {
		c := overUnix(t, fake{status: func(context.Context) (Status, error) { return Status{}, tt.sent }})
		if _, err := c.Status(t.Context()); CodeOf(err) != tt.want || err.Error() != tt.sent.Error() {
			t.Errorf("%v came as %q: %v", tt.sent, CodeOf(err), err)
		}
	}
}

func TestCallCarriesBytesAndPeer(t *testing.T) {
	c := overPipes(t, "beta", fake{call: func(_ context.Context, peer, verb string, body []byte) ([]byte, error) {
		if verb == "nosuch" {
			return nil, fmt.Errorf("verb %q: %w", verb, ErrNotFound)
		}
		return append([]byte(peer+" "+verb+" "), body...), nil
	}})
	got, err := c.Call(t.Context(), "report", []byte{0, 0xff, '\n'})
	if err != nil || string(got) != "beta report \x00\xff\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Call(t.Context(), "nosuch", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown verb: %v", err)
	}
}

// A connection that cannot say whose it is gets no answer from a node's face, and the
// face for nodes has nothing that is meant for operators.
func TestFacesAreApart(t *testing.T) {
	nameless := overPipes(t, "", fake{})
	if _, err := nameless.Call(t.Context(), "report", nil); !errors.Is(err, ErrInternal) || !strings.Contains(err.Error(), errNoPeer.Error()) {
		t.Errorf("call without a peer: %v", err)
	}
	if _, err := nameless.Fence(t.Context(), FenceRequest{Node: "a", Action: ActionOff}, nil); !errors.Is(err, ErrInternal) {
		t.Errorf("fence without a peer: %v", err)
	}
	if _, err := overPipes(t, "beta", fake{}).Status(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Errorf("status on a node's face: %v", err)
	}
	if _, err := overUnix(t, fake{}).Call(t.Context(), "report", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("call on the operator's face: %v", err)
	}
}

// TestRequestsAreBounded sends what no client of ours would.
func TestRequestsAreBounded(t *testing.T) {
	l := newPipes("beta")
	start(t, l, Operator(fake{}))
	c := client(t, l.dial)
	for name, tt := range map[string]struct {
		method, path, body string
		header             http.Header
		want               string
	}{
		"unknown key":   {"POST", pathFence, `{"node":"a","action":"off","force":true}`, nil, "force"},
		"two values":    {"POST", pathFence, `{"node":"a","action":"off"}{}`, nil, "goes on"},
		"no JSON":       {"POST", pathFence, `node=a`, nil, "invalid character"},
		"wrong type":    {"POST", pathFence, `{"node":1}`, nil, "number"},
		"no action":     {"POST", pathFence, `{"node":"a"}`, nil, "none of off, on, reboot"},
		"too large":     {"POST", pathFence, strings.Repeat(" ", maxRequest+1), nil, "over the limit"},
		"body on a GET": {"GET", pathStatus, `x`, nil, "over the limit"},
		"wrong method":  {"DELETE", pathStatus, ``, nil, "unknown request"},
		"wrong path":    {"GET", "/v2/status", ``, nil, "unknown request"},
		"bad timeout":   {"GET", pathStatus, ``, http.Header{timeoutHeader: {"soon"}}, "milliseconds"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://hamgr"+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = tt.header
			resp, err := c.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("answered %s", resp.Status)
			}
			if err := readError(resp); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want invalid with %q", err, tt.want)
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	big := overPipes(t, "beta", fake{call: func(context.Context, string, string, []byte) ([]byte, error) {
		return make([]byte, MaxCall+1), nil
	}})
	if _, err := big.Call(t.Context(), "report", nil); !errors.Is(err, ErrInternal) {
		t.Errorf("an answer over the limit: %v", err)
	}
	if _, err := readLimited(bytes.NewReader(make([]byte, 11)), 10); err == nil {
		t.Error("11 bytes read under a limit of 10")
	}
	if b, err := readLimited(bytes.NewReader(make([]byte, 10)), 10); err != nil || len(b) != 10 {
		t.Errorf("10 bytes under a limit of 10: %d, %v", len(b), err)
	}
}

// The daemon is told how long its asker waits, and gives up a little earlier.
func TestDeadlineReachesTheBackend(t *testing.T) {
	var left time.Duration
	c := overUnix(t, fake{status: func(ctx context.Context) (Status, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			return Status{}, errors.New("no deadline")
		}
		left = time.Until(deadline)
		return Status{}, nil
	}})
	for _, tt := range []struct{ wait, atMost time.Duration }{{10 * time.Second, 9 * time.Second}, {time.Hour, longestRead}} {
		ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
		_, err := c.Status(ctx)
		cancel()
		if err != nil || left > tt.atMost || left < tt.atMost/2 {
			t.Errorf("asked with %v: the daemon has %v, want a little under %v (%v)", tt.wait, left, tt.atMost, err)
		}
	}
	if got := timeLeft(-time.Second); got != 0 {
		t.Errorf("time left after the end: %d ms", got)
	}
}

func TestRoutesAreSortedAndBounded(t *testing.T) {
	for _, face := range []Face{Operator(fake{}), Nodes(fake{})} {
		for i, rt := range face.routes {
			if i > 0 && face.routes[i-1].path >= rt.path {
				t.Errorf("%s comes after %s", rt.path, face.routes[i-1].path)
			}
			if rt.longest <= 0 || rt.method != "GET" && rt.limit <= 0 {
				t.Errorf("%s %s has no bounds", rt.method, rt.path)
			}
		}
	}
}

func FuzzDecodeFenceRequest(f *testing.F) {
	f.Add([]byte(`{"node":"alpha","action":"off","by":"root","reason":"x"}`))
	f.Add([]byte(`{"node":"alpha","action":"off","node":"beta"}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"node":"\ud800","action":"on"} `))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := decodeRequest[FenceRequest](data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v is not invalid", data, err)
			}
			return
		}
		if req.Validate() != nil {
			t.Errorf("%q gave an invalid request %+v", data, req)
		}
	})
}

func FuzzReadError(f *testing.F) {
	f.Add([]byte(`{"schema":1,"error":{"code":"unsafe","message":"m","hint":"h"}}`))
	f.Add([]byte(`{"error":null}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := readError(&http.Response{Status: "500 no", Body: io.NopCloser(bytes.NewReader(data))})
		if CodeOf(err) == "" || AsError(err) == nil {
			t.Errorf("%q gave an error without a code: %v", data, err)
		}
	})
}

func FuzzReadFence(f *testing.F) {
	f.Add([]byte("{\"event\":{\"phase\":\"off\",\"text\":\"x\"}}\n{}\n{\"result\":{\"op\":1,\"phase\":\"done\"}}\n"))
	f.Add([]byte("{\"error\":{\"code\":\"failed\",\"message\":\"m\"}}\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := 0
		result, err := readFence(bytes.NewReader(data), func() {}, func(FenceEvent) { events++ })
		if err == nil && !bytes.Contains(data, []byte("esult")) && !bytes.Contains(data, []byte(`\u`)) {
			t.Errorf("%q gave a result %+v", data, result)
		}
		if events > bytes.Count(data, []byte("\n"))+1 {
			t.Errorf("%q gave %d events", data, events)
		}
	})
}
