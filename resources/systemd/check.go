package systemd

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
)

// Check implements resources.Checker.
func (s *service) Check(ctx context.Context) error {
	m, release, err := s.link.acquire(ctx)
	if err != nil {
		return err
	}
	u, err := m.Unit(ctx, s.opts.Unit)
	if err == nil {
		err = s.check(ctx, m, u)
	}
	release(ctx.Err() == nil)
	return err
}

func (s *service) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s %s", resources.ErrSetup, s.opts.Unit, fmt.Sprintf(format, args...))
}

// check refuses what could not be started, what nobody could stop, and above all what would start
// without a grant: at boot, by a connection, or by a timer.
func (s *service) check(ctx context.Context, m manager, u bus.Properties) error {
	unit := s.opts.Unit
	switch load := u.Text("LoadState"); load {
	case "loaded":
	case "not-found":
		return s.refuse("does not exist on this host; install it, or correct the name")
	case "masked":
		return s.refuse("is masked; run: systemctl unmask %s", unit)
	default: // bad-setting, error, and what may come
		return s.refuse("cannot be loaded (%s%s); see: systemd-analyze verify %s", load, loadError(u), unit)
	}
	if id := u.Text("Id"); id != unit {
		return s.refuse("is another name of %s; write that one", id)
	}
	switch state := u.Text("UnitFileState"); state {
	case "enabled":
		return s.refuse("is enabled: it would start at boot without a grant; run: systemctl disable %s", unit)
	case "enabled-runtime":
		return s.refuse("is enabled: it would start without a grant; run: systemctl disable --runtime %s", unit)
	}
	switch {
	case u.Flag("RefuseManualStart"):
		return s.refuse("has RefuseManualStart=yes: only other units can start it")
	case u.Flag("RefuseManualStop"):
		return s.refuse("has RefuseManualStop=yes: only other units can stop it")
	case u.Flag("StopWhenUnneeded"):
		return s.refuse("has StopWhenUnneeded=yes: systemd would stop it at once")
	case u.Flag("Transient"):
		return s.refuse("is transient: nothing is left of it when it stops")
	}
	p, err := m.Service(ctx, unit)
	if err != nil {
		return err
	}
	if p.Text("Type") == "oneshot" && !p.Flag("RemainAfterExit") {
		return s.refuse("is of Type=oneshot and is over as soon as it has started; set RemainAfterExit=yes in it")
	}
	return s.checkStarters(ctx, m, unit, u, map[string]bool{unit: true})
}

// loadError is what systemd says of a unit that cannot be loaded: the name and the text of a D-Bus error.
func loadError(u bus.Properties) string {
	pair, _ := u["LoadError"].([]any)
	if len(pair) != 2 {
		return ""
	}
	text, _ := pair[1].(string)
	if text == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(text, ".")
}

// dependencies by which the start of one unit starts another one, seen from the latter: systemd.unit(5).
var startedBy = []string{"WantedBy", "RequiredBy", "BoundBy", "UpheldBy", "TriggeredBy", "OnFailureOf", "OnSuccessOf"}

// maxStarters bounds the search for what starts a unit.
const maxStarters = 200

// checkStarters refuses the service if anything starts it that is active, or would be after a boot, whatever is between the
// two. What hamgr itself has started does not count: the order of its group sees to that.
func (s *service) checkStarters(ctx context.Context, m manager, name string, u bus.Properties, seen map[string]bool) error {
	for _, kind := range startedBy {
		for _, starter := range u.Texts(kind) {
			if seen[starter] || s.isOurs(starter) {
				continue
			}
			if len(seen) > maxStarters {
				return s.refuse("may be started by more than %d other units", maxStarters)
			}
			seen[starter] = true
			p, err := m.Unit(ctx, starter)
			if err != nil {
				return err
			}
			if how := byItself(p, u.IsActive() && pulls(u, starter)); how != "" {
				return s.refuse("would start without a grant: %s is %s and starts %s (%s=); %s", starter, how, name, kind, starterCure(starter, name))
			}
			if err := s.checkStarters(ctx, m, starter, p, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// byItself says why a unit is active, or would be after a boot, without hamgr. A unit that came with the very service, such as a
// socket that the service requires, goes with it, too.
func byItself(p bus.Properties, with bool) string {
	state := p.Text("UnitFileState")
	switch {
	case strings.HasPrefix(state, "enabled"):
		return state
	case !p.IsDown() && !with:
		return p.State()
	}
	return ""
}

// pulls reports whether the start of a unit starts the other one.
func pulls(u bus.Properties, other string) bool {
	for _, kind := range []string{"Requires", "Wants", "BindsTo", "Upholds"} {
		if slices.Contains(u.Texts(kind), other) {
			return true
		}
	}
	return false
}

// unitDirs are where packages and administrators put units and links between them: systemd.unit(5), "Unit File Load Path".
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// starterCure tells how to cut the two apart.
func starterCure(starter, name string) string {
	if path.Ext(starter) != ".target" {
		return fmt.Sprintf("run: systemctl disable --now %s", starter)
	}
	// A target that everything hangs on is not to be stopped. What systemctl disable does not undo is a link of a package's.
	for _, dir := range unitDirs {
		for _, kind := range []string{"wants", "requires", "upholds"} {
			link := fmt.Sprintf("%s/%s.%s/%s", dir, starter, kind, name)
			if _, err := os.Lstat(link); err == nil {
				return fmt.Sprintf("run: rm %s; systemctl daemon-reload", link)
			}
		}
	}
	return fmt.Sprintf("take it out of %s; see: systemctl cat %s", starter, starter)
}
