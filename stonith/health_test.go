package stonith_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// A check gives way to an order that comes, and to one that is under way; the order loses nothing by it.
func TestCheckGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New("1", "2")
		d.Behave(fake.Behavior{Answer: 100 * time.Millisecond})
		device := bmc("pdu-a", d, "1", "2")
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{device}}}
		first, second := make(chan []stonith.Health), make(chan []stonith.Health)
		go func() { first <- f.Check(t.Context(), target) }()
		time.Sleep(350 * time.Millisecond) // the first plug is checked, the second is being
		go func() {
			time.Sleep(50 * time.Millisecond)
			short := device
			short.Timeout = 400 * time.Millisecond // which ends before the order does
			second <- f.Check(t.Context(), stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{short}}})
		}()
		if _, err := f.Off(t.Context(), order(1, level(device))); err != nil {
			t.Error(err)
		}
		if h := <-first; !h[0].Healthy() || h[0].GaveWay || h[1].Healthy() || !h[1].GaveWay {
			t.Errorf("overtaken: %+v", h)
		}
		for _, h := range <-second {
			if h.Healthy() || !h.GaveWay {
				t.Errorf("came second: %+v", h)
			}
		}
		if f.Wait(t.Context()); overlapping(d) || d.Overlapped() || d.Handles() != 0 {
			t.Errorf("calls overlapped %v, handles %v, %d open", overlapping(d), d.Overlapped(), d.Handles())
		}
	})
}

// A check changes nothing, whatever it finds; and a device that is locked is told from one that is busy.
func TestCheckOfLockedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Stall: []string{"check"}, Deaf: true})
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{bmc("alpha-bmc", d)}}}
		if h := f.Check(t.Context(), target)[0]; h.Healthy() || h.State != agents.On || h.Error != "check: call does not return" {
			t.Errorf("first: %+v", h)
		}
		if h := f.Check(t.Context(), target)[0]; h.Healthy() || h.GaveWay || h.Trouble != agents.Busy || !strings.Contains(h.Error, "locked by an earlier check") {
			t.Errorf("second: %+v", h)
		}
		d.Release()
		f.Wait(t.Context())
		for _, c := range d.Calls() {
			if c.Verb == "off" || c.Verb == "on" {
				t.Errorf("%s was sent", c.Verb)
			}
		}
	})
}

// A cancelled check returns at once.
func TestCheckCancelled(t *testing.T) {
	for _, verb := range []string{"open", "status", "check", "identity", "close"} {
		synctest.Test(t, func(t *testing.T) {
			f, d := stonith.New(nil), fake.New()
			d.Behave(fake.Behavior{Stall: []string{verb}, Deaf: true})
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("enough")
			time.AfterFunc(time.Second, func() { cancel(why) })
			begun := time.Now()
			h := f.Check(ctx, stonith.Target{Machine: stonith.Machine{Serial: "SN1"}, Levels: [][]stonith.Device{{sees("alpha-bmc", d)}}})
			if took := time.Since(begun); took > 1050*time.Millisecond || verb != "close" && (took < time.Second || !strings.Contains(h[0].Error, "enough")) {
				t.Errorf("%s: after %v: %+v", verb, took, h)
			}
			d.Release()
			time.Sleep(time.Second)
			d.Release() // the close, where that is deaf too
			if f.Wait(t.Context()); d.Handles() != 0 {
				t.Errorf("%s: %d handles left open", verb, d.Handles())
			}
		})
	}
}

func TestHealthInJSON(t *testing.T) {
	text, err := json.Marshal(stonith.Health{Level: 1, Device: "alpha-bmc", Agent: "ipmi", State: agents.On})
	if want := `{"level":1,"device":"alpha-bmc","agent":"ipmi","state":"on","took_ms":0}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
