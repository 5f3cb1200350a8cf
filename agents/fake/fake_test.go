package fake_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/BurntSushi/toml"
	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBehavior(t *testing.T) {
	tests := map[string]struct {
		behavior fake.Behavior
		offErr   error
		after    time.Duration // from the command to the look
		truth    agents.PowerState
		reads    agents.PowerState
		readErr  error
	}{
		"obeys":               {truth: agents.Off, reads: agents.Off},
		"before the lag":      {behavior: fake.Behavior{Lag: 6 * time.Second}, after: 5 * time.Second, truth: agents.On, reads: agents.On},
		"after the lag":       {behavior: fake.Behavior{Lag: 6 * time.Second}, after: 7 * time.Second, truth: agents.Off, reads: agents.Off},
		"accepted, ignored":   {behavior: fake.Behavior{Command: "ignore"}, truth: agents.On, reads: agents.On},
		"refused":             {behavior: fake.Behavior{Command: "refuse"}, offErr: fake.ErrDevice, truth: agents.On, reads: agents.On},
		"error, but obeyed":   {behavior: fake.Behavior{Command: "error"}, offErr: fake.ErrDevice, truth: agents.Off, reads: agents.Off},
		"says off, is on":     {behavior: fake.Behavior{Command: "ignore", Status: "off"}, truth: agents.On, reads: agents.Off},
		"says unknown":        {behavior: fake.Behavior{Status: "unknown"}, truth: agents.Off, reads: agents.Unknown},
		"state is missing":    {behavior: fake.Behavior{Status: "missing"}, truth: agents.Off, reads: agents.Unknown},
		"reads fail":          {behavior: fake.Behavior{Status: "error"}, truth: agents.Off, readErr: fake.ErrDevice},
		"wrong password":      {behavior: fake.Behavior{Login: true}, offErr: fake.ErrLogin, truth: agents.On, readErr: fake.ErrLogin},
		"comes on by itself":  {behavior: fake.Behavior{Rebound: time.Second}, after: 2 * time.Second, truth: agents.On, reads: agents.On},
		"scripted read first": {behavior: fake.Behavior{Reads: []string{"on"}}, truth: agents.Off, reads: agents.On},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := fake.New()
				d.Behave(tt.behavior)
				a, err := d.Open()
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Off(t.Context(), ""); !errors.Is(err, tt.offErr) {
					t.Errorf("off: %v, want %v", err, tt.offErr)
				}
				time.Sleep(tt.after)
				r, err := a.Status(t.Context(), "")
				if r.State != tt.reads || !errors.Is(err, tt.readErr) {
					t.Errorf("reads %v, %v; want %v, %v", r.State, err, tt.reads, tt.readErr)
				}
				if truth := d.Power(""); truth != tt.truth {
					t.Errorf("truth is %v, want %v", truth, tt.truth)
				}
				if err := a.Close(t.Context()); err != nil || d.Handles() != 0 {
					t.Errorf("close: %v, %d handles open", err, d.Handles())
				}
			})
		})
	}
}

func TestStall(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := fake.New()
			d.Behave(fake.Behavior{Stall: []string{"status"}, Deaf: deaf})
			a, _ := d.Open()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			returned := make(chan error, 1)
			go func() { _, err := a.Status(ctx, ""); returned <- err }()
			time.Sleep(time.Minute)
			select {
			case err := <-returned:
				if deaf || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("deaf %v: returned %v", deaf, err)
				}
			default:
				if !deaf {
					t.Error("a stalled call must end with its context")
				}
				d.Release()
				if err := <-returned; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSessionsAndPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New("1", "2")
		var powered []string
		d.OnPower = func(plug string, s agents.PowerState) { powered = append(powered, plug+" "+s.String()) }
		d.Behave(fake.Behavior{Sessions: 1})
		a, _ := d.Open()
		b, _ := d.Open()
		_, err1 := a.Status(t.Context(), "1")
		_, err2 := b.Status(t.Context(), "2")
		a.Close(t.Context())
		_, err3 := b.Status(t.Context(), "2")
		_, err4 := b.Status(t.Context(), "3")
		if err1 != nil || !errors.Is(err2, fake.ErrSessions) || err3 != nil || !errors.Is(err4, fake.ErrPlug) {
			t.Errorf("got %v, %v, %v, %v", err1, err2, err3, err4)
		}
		b.Off(t.Context(), "2")
		b.Off(t.Context(), "2")
		d.SetPower("2", agents.On)
		b.Close(t.Context())
		if want := []string{"2 off", "2 on"}; !reflect.DeepEqual(powered, want) {
			t.Errorf("power changed %q, want %q", powered, want)
		}
		if n := len(d.History("2")); n != 3 {
			t.Errorf("%d changes recorded, want 3", n)
		}
		if !d.Overlapped() || d.Handles() != 0 || len(d.Calls()) != 10 {
			t.Errorf("overlapped %v, %d handles, %d calls", d.Overlapped(), d.Handles(), len(d.Calls()))
		}
	})
}

func TestOptions(t *testing.T) {
	d := fake.New()
	kind := fake.Kind(map[string]*fake.Device{"bmc": d})
	o := kind.Options()
	if _, err := toml.Decode("device = 'bmc'\nlag = '1.5s'\ncommand = 'ignore'\nstall = ['on']", o); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := o.Open(slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	a.Close(t.Context())
	if b := d.Behavior(); b.Lag != 1500*time.Millisecond || b.Command != "ignore" {
		t.Errorf("behaves %+v", b)
	}

	o = kind.Options()
	if _, err := toml.Decode("device = 'bcm'\nlag = '-1s'\ncommand = 'cycle'\nreads = ['of']\nstall = ['reset']", o); err != nil {
		t.Fatal(err)
	}
	err = o.Validate()
	for _, key := range []string{"device", "lag", "command", "reads", "stall"} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("no complaint about %s in: %v", key, err)
		}
	}
}
