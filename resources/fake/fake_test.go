package fake

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func on(t *testing.T, w *World, host, boot string, token uint64, change func(*Options)) resources.Resource {
	t.Helper()
	o := Kind(w, host).Options().(*Options)
	if change != nil {
		change(o)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := o.New(resources.Env{Group: "db", Resource: "app", Node: host, Boot: boot, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantState(t *testing.T, r resources.Resource, want resources.State) {
	t.Helper()
	got, detail, err := r.Probe(t.Context())
	if err != nil || got != want {
		t.Errorf("probe: %v %q %v, want %v", got, detail, err, want)
	}
}

func TestOneHostAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := NewWorld(), t.Context()
		a := on(t, w, "alpha", "a1", 1, func(o *Options) { o.StartDelay, o.StopDelay = time.Second, 2*time.Second })
		wantState(t, a, resources.Inactive)
		begun := time.Now()
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("start took %s", took)
		}
		wantState(t, a, resources.Active)
		wantState(t, on(t, w, "alpha", "a1", 2, nil), resources.Failed)
		if err := a.Start(ctx); err != nil {
			t.Errorf("second start under the same token: %v", err)
		}
		if err := a.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := on(t, w, "beta", "b1", 2, nil).Start(ctx); err != nil {
			t.Fatal(err)
		}
		if v := w.Violations(); len(v) != 0 {
			t.Errorf("violations: %v", v)
		}
		if h := w.Holders("db"); len(h) != 1 || h[0] != "beta" {
			t.Errorf("holders: %v", h)
		}
	})
}

func TestBreachesAreSeen(t *testing.T) {
	tests := []struct {
		name string
		do   func(t *testing.T, w *World, a resources.Resource)
		want string // part of the only violation; empty: none
	}{
		{"second host", func(t *testing.T, w *World, _ resources.Resource) {
			_ = on(t, w, "beta", "b1", 6, nil).Start(t.Context())
		}, "two hosts"},
		{"second host while the first is frozen", func(t *testing.T, w *World, _ resources.Resource) {
			w.Freeze("alpha")
			_ = on(t, w, "beta", "b1", 6, nil).Start(t.Context())
		}, "two hosts"},
		{"second host after a stop that failed", func(t *testing.T, w *World, a resources.Resource) {
			w.Set("alpha", "db", "app", "stop", Fails)
			if err := a.Stop(t.Context()); !errors.Is(err, ErrTold) {
				t.Errorf("stop: %v", err)
			}
			_ = on(t, w, "beta", "b1", 6, nil).Start(t.Context())
		}, "two hosts"},
		{"second host whose start fails", func(t *testing.T, w *World, _ resources.Resource) {
			w.Set("beta", "db", "app", "start", Fails)
			_ = on(t, w, "beta", "b1", 6, nil).Start(t.Context())
		}, "two hosts"},
		{"one token twice", func(t *testing.T, w *World, a resources.Resource) {
			_ = a.Stop(t.Context())
			_ = on(t, w, "beta", "b1", 5, nil).Start(t.Context())
		}, "granted twice"},
		{"one token in two boots", func(t *testing.T, w *World, _ resources.Resource) {
			w.PowerOff("alpha")
			w.PowerOn("alpha")
			_ = on(t, w, "alpha", "a2", 5, nil).Start(t.Context())
		}, "granted twice"},
		{"one disk in two groups", func(t *testing.T, w *World, _ resources.Resource) {
			for _, group := range []string{"mail", "web"} {
				o := Kind(w, "beta").Options().(*Options)
				o.Disk = "sda"
				r, err := o.New(resources.Env{Group: group, Resource: "data", Node: "beta", Boot: "b1", Token: 6})
				if err == nil {
					err = r.Start(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		}, "disk sda"},
		{"after power-off", func(t *testing.T, w *World, _ resources.Resource) {
			w.PowerOff("alpha")
			if err := on(t, w, "beta", "b1", 6, nil).Start(t.Context()); err != nil {
				t.Errorf("start: %v", err)
			}
		}, ""},
		{"lower token", func(t *testing.T, w *World, a resources.Resource) {
			_ = a.Stop(t.Context())
			if err := on(t, w, "beta", "b1", 4, nil).Start(t.Context()); !errors.Is(err, ErrStale) {
				t.Errorf("start: %v", err)
			}
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWorld()
				a := on(t, w, "alpha", "a1", 5, nil)
				if err := a.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				test.do(t, w, a)
				v := w.Violations()
				if test.want == "" && len(v) != 0 {
					t.Errorf("violations: %v", v)
				}
				if test.want != "" && (len(v) != 1 || !strings.Contains(v[0].What, test.want)) {
					t.Errorf("violations: %v, want one with %q", v, test.want)
				}
			})
		})
	}
}

func TestFreezeHoldsCallsAndPowerOffEndsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := NewWorld(), t.Context()
		a := on(t, w, "alpha", "a1", 1, nil)
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		w.Freeze("alpha")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, _, err := a.Probe(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("probe on a frozen host: %v", err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- a.Stop(ctx) }()
		time.Sleep(time.Minute)
		if h := w.Holders("db"); len(h) != 1 {
			t.Errorf("a frozen host let go: %v", h)
		}
		w.PowerOff("alpha")
		if err := <-stopped; !errors.Is(err, ErrPoweredOff) {
			t.Errorf("stop: %v", err)
		}
		if err := a.Start(ctx); !errors.Is(err, ErrPoweredOff) {
			t.Errorf("start without power: %v", err)
		}
		w.PowerOn("alpha")
		if err := a.Start(ctx); !errors.Is(err, ErrPoweredOff) {
			t.Errorf("start by a daemon of the former life: %v", err)
		}
		if len(w.Active()) != 0 {
			t.Errorf("active: %v", w.Active())
		}
	})
}

func TestThawLetsCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld()
		a := on(t, w, "alpha", "a1", 1, nil)
		w.Freeze("alpha")
		time.AfterFunc(time.Minute, func() { w.Thaw("alpha") })
		begun := time.Now()
		if err := a.Start(t.Context()); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("start: %v after %s", err, time.Since(begun))
		}
	})
}

func TestDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := NewWorld(), t.Context()
		a := on(t, w, "alpha", "a1", 1, func(o *Options) { o.DieAfter = time.Hour })
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err := a.(resources.Watcher).Died(ctx)
		if err == nil || time.Since(begun) != time.Hour {
			t.Errorf("died: %v after %s", err, time.Since(begun))
		}
		wantState(t, a, resources.Inactive)
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := a.(resources.Watcher).Died(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("died: %v", err)
		}
		if !w.Kill("alpha", "db", "app") || len(w.Active()) != 0 {
			t.Error("kill found nothing, or left it")
		}
	})
}

func TestHangsObeyTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld()
		a := on(t, w, "alpha", "a1", 1, func(o *Options) {
			o.HangStop, o.FailStart, o.HangStart = []string{"alpha"}, []string{"alpha"}, []string{"beta"}
		})
		if err := a.Start(t.Context()); !errors.Is(err, ErrTold) {
			t.Errorf("start: %v", err)
		}
		wantState(t, a, resources.Failed)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := a.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("stop: %v after %s", err, time.Since(begun))
		}
		if len(w.Active()) != 1 {
			t.Error("a stop that hung let go")
		}
	})
}
