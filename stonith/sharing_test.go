package stonith_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// An order cancels the read that holds its device, and is served before the reads
// that wait longer.
func TestOrderGoesAheadOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Answer: 4 * time.Second})
		device := bmc("alpha-bmc", d)
		device.Timeout = time.Minute
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{device}}}

		var mu sync.Mutex
		var ended []string
		var wg sync.WaitGroup
		end := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, what)
		}
		for _, name := range []string{"read 1", "read 2", "read 3"} {
			wg.Go(func() { end(name + ": " + f.Status(t.Context(), target)[0].Error) })
			time.Sleep(100 * time.Millisecond)
		}
		d.Behave(fake.Behavior{Answer: time.Millisecond}) // so that the reads do not end in one instant
		begun := time.Now()
		wg.Go(func() {
			_, err := f.Off(t.Context(), order(1, level(device)))
			if err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took > 400*time.Millisecond {
				t.Errorf("the order took %v beside the reads", took)
			}
			end("order")
		})
		wg.Wait()
		if want := []string{"read 1: gave way to a fencing order", "order", "read 2: ", "read 3: "}; !slices.Equal(ended, want) {
			t.Errorf("ended in the order %q, want %q", ended, want)
		}
		f.Wait(t.Context())
		if d.Overlapped() || d.Handles() != 0 {
			t.Errorf("two handles at once: %v; left open: %d", d.Overlapped(), d.Handles())
		}
	})
}

// A call that ignores its context locks the device, for as long as it lasts, and
// those who wait are told so.
func TestDeafCallLocksTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f, d := stonith.New(slog.New(slog.NewTextHandler(&log, nil))), fake.New()
		device := bmc("alpha-bmc", d)
		d.Behave(fake.Behavior{Stall: []string{"status"}, Deaf: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{device}}}
		if s := f.Status(ctx, target); s[0].State != agents.Unknown || s[0].Error == "" {
			t.Errorf("status %+v", s)
		}
		d.Behave(fake.Behavior{})
		_, err := f.Off(t.Context(), order(1, level(device)))
		var failure *stonith.Failure
		if !errors.As(err, &failure) || failure.Commanded || !strings.Contains(err.Error(), "locked by an earlier power status") {
			t.Errorf("while locked: %v", err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "device locked by a call that does not return") {
			t.Errorf("not logged: %s", log.String())
		}
		d.Release()
		if _, err := f.Off(t.Context(), order(1, level(device))); err != nil {
			t.Errorf("after its return: %v", err)
		}
		f.Wait(t.Context())
		if d.Handles() != 0 || d.Overlapped() {
			t.Errorf("%d handles, overlapped %v", d.Handles(), d.Overlapped())
		}
	})
}

// Two nodes on one PDU are fenced at once: both are proven, and the PDU sees one
// after the other.
func TestOneOperationPerDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New("1", "2")
		var wg sync.WaitGroup
		for i, node := range []string{"alpha", "beta"} {
			o := order(uint64(i), level(bmc("pdu-a", d, []string{"1", "2"}[i])))
			o.Node = node
			wg.Go(func() {
				if _, err := f.Off(t.Context(), o); err != nil {
					t.Errorf("%s: %v", node, err)
				}
			})
		}
		wg.Wait()
		if f.Wait(t.Context()); d.Overlapped() {
			t.Error("two handles at once")
		}
	})
}

// A BMC with one session slot is monitored for long, with reads cancelled at random;
// its slot must be free when the shot comes.
func TestSessionsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		f, d := stonith.New(nil), fake.New()
		device := bmc("alpha-bmc", d)
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{device}}}
		for range 500 {
			b := fake.Behavior{Sessions: 1, Answer: time.Duration(rng.IntN(50)) * time.Millisecond}
			switch rng.IntN(5) {
			case 0:
				b.Stall = []string{"status"}
			case 1:
				b.Status = "error"
			}
			d.Behave(b)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(60))*time.Millisecond)
			f.Status(ctx, target)
			cancel()
		}
		d.Behave(fake.Behavior{Sessions: 1})
		if _, err := f.Off(t.Context(), order(1, level(device))); err != nil {
			t.Error(err)
		}
		f.Wait(t.Context())
		if d.Handles() != 0 || d.Overlapped() {
			t.Errorf("%d handles, overlapped %v", d.Handles(), d.Overlapped())
		}
		for _, c := range d.Calls() {
			if errors.Is(c.Err, fake.ErrSessions) {
				t.Fatal("a session was missing")
			}
		}
	})
}

// A close that is never answered keeps the device for its own short time only.
func TestStalledCloseFreesTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Stall: []string{"close"}})
		begun := time.Now()
		for range 2 {
			if _, err := f.Off(t.Context(), order(1, level(bmc("alpha-bmc", d)))); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 1500*time.Millisecond {
			t.Errorf("two operations took %v", took)
		}
		if f.Wait(t.Context()); d.Handles() != 0 || d.Overlapped() {
			t.Errorf("%d handles, overlapped %v", d.Handles(), d.Overlapped())
		}
	})
}

// The log tells the decisions by the names that operators and the demo look for.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f, d := stonith.New(slog.New(slog.NewJSONHandler(&out, nil))), fake.New()
		if _, err := f.Off(t.Context(), order(7, level(bmc("alpha-bmc", d)))); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, l := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var record struct {
				Msg, Node, Device string
				Op                uint64
			}
			if err := json.Unmarshal([]byte(l), &record); err != nil {
				t.Fatal(err)
			}
			if record.Node != "alpha" || record.Device != "alpha-bmc" || record.Op != 7 {
				t.Errorf("keys are missing in %s", l)
			}
			said = append(said, record.Msg)
		}
		if want := []string{"off ordered", "off read back"}; !slices.Equal(said, want) {
			t.Errorf("logged %q, want %q", said, want)
		}
	})
}
