package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/hamgr/hamgr/resources"
)

const (
	// runtimeUnits holds unit files that a reboot forgets: systemd.unit(5), "Unit File Load Path".
	runtimeUnits = "/run/systemd/system"
	dropInName   = "50-hamgr.conf"
	ownUnit      = "hamgr.service"
	// groupsTarget stands for all services that run in groups. hamgr.service wants it, and comes after it.
	groupsTarget = "hamgr-groups.target"
)

// grant is what a drop-in tells of the grant under which a service was started.
type grant struct {
	token           uint64
	group, resource string
}

func grantOf(env resources.Env) grant {
	return grant{env.Token, env.Group, env.Resource}
}

func (g grant) String() string {
	return fmt.Sprintf("token %d (resource %s of group %s)", g.token, g.resource, g.group)
}

// dropIn gives the unit what belongs to a grant.
//
// Before= is about the shutdown of the host, where systemd stops things in the reverse order: first hamgr, which may
// hand its groups over in their order, and then what is left. The other way round the service would be
// stopped under hamgr's hands, and look like a failure. It names a target, after which hamgr.service comes, and not
// hamgr.service itself: that would hold a daemon that has crashed back until a service that is just starting
// is up, and its silence would get the node fenced. An order holds only between jobs, and the target has none but at shutdown.
//
// Restart=no, because a service that comes back by itself would run beside what hamgr decides about its failure.
func dropIn(env resources.Env) ([]byte, error) {
	var b strings.Builder
	b.WriteString("# Written by hamgr when it started the service, and removed when it stopped it.\n")
	fmt.Fprintf(&b, "[Unit]\nBefore=%s\n\n[Service]\nRestart=no\n", groupsTarget)
	for _, variable := range env.Environ() {
		if strings.ContainsFunc(variable, unicode.IsControl) {
			return nil, fmt.Errorf("a control character in %q", variable)
		}
		fmt.Fprintf(&b, "Environment=\"%s\"\n", quoter.Replace(variable))
	}
	return []byte(b.String()), nil
}

// The rules of quotes are those of systemd.syntax(7), "Quoting"; percent signs are specifiers: systemd.unit(5).
var (
	quoter   = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`)
	unquoter = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `%%`, `%`)
)

// parseDropIn reads the grant back. What is damaged has no token, and so is no grant of anybody.
func parseDropIn(b []byte) grant {
	var g grant
	for line := range strings.Lines(string(b)) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), `Environment="`)
		if !ok || !strings.HasSuffix(line, `"`) {
			continue
		}
		name, value, _ := strings.Cut(unquoter.Replace(strings.TrimSuffix(line, `"`)), "=")
		switch name {
		case "HAMGR_TOKEN":
			g.token, _ = strconv.ParseUint(value, 10, 64)
		case "HAMGR_GROUP":
			g.group = value
		case "HAMGR_RESOURCE":
			g.resource = value
		}
	}
	return g
}

func (s *service) dropInPath(unit string) string {
	return filepath.Join(s.dropIns, unit+".d", dropInName)
}

// granted tells the grant under which the unit runs, if any.
func (s *service) granted() (g grant, ok bool, err error) {
	b, err := os.ReadFile(s.dropInPath(s.opts.Unit))
	if errors.Is(err, os.ErrNotExist) {
		return grant{}, false, nil
	}
	if err != nil {
		return grant{}, false, fmt.Errorf("read the grant of %s: %w", s.opts.Unit, err)
	}
	return parseDropIn(b), true, nil
}

func (s *service) writeDropIn() error {
	b, err := dropIn(s.env)
	if err != nil {
		return fmt.Errorf("hand the token to %s: %w", s.opts.Unit, err)
	}
	file := s.dropInPath(s.opts.Unit)
	err = os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file+".new", b, 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("hand the token to %s: %w", s.opts.Unit, err)
	}
	return nil
}

// removeDropIn leaves systemd's memory of it alone: a service that somebody starts by hand now has a token that is
// over, which is better than none. systemd forgets it when it unloads the unit.
func (s *service) removeDropIn() error {
	file := s.dropInPath(s.opts.Unit)
	err := os.Remove(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take the token from %s: %w", s.opts.Unit, err)
	}
	_ = os.Remove(filepath.Dir(file)) // unless others have drop-ins there
	return nil
}

// isOurs reports whether hamgr has started the other unit.
func (s *service) isOurs(unit string) bool {
	_, err := os.Stat(s.dropInPath(unit))
	return err == nil
}
