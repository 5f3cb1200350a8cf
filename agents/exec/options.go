package exec

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// What a device's state tells (Options.See).
const (
	seesMachine = "machine"
	seesFeed    = "feed"
)

// Options are the keys of an exec device.
type Options struct {
	Command string            `toml:"command" doc:"the fence agent: a name like \"fence_apc\", looked for in /usr/sbin, /usr/bin, /sbin and /bin, or an absolute path"`
	Options map[string]string `toml:"options" doc:"the fence agent's own options, all as strings; a secret by NAME_file, NAME_env or NAME_credential"`
	// Secrets are those of the options that are secret, by their names. NAME_file is the path as it
	// was written: there are agents with an option of that name.
	Secrets map[string]agents.Secret `toml:"options" doc:"those of them that are secrets" secret:"(.*_)?(pass|passwd|password|passphrase|secret|community|token|apikey|api_key|access_key|secret_key|kg)"`
	See     string                   `toml:"sees" oneof:"feed|machine" doc:"whose power state the device reads: an outlet's (feed), or the machine's own, as a BMC does (machine)"`
}

// ours are options that hamgr fills in for each call.
var ours = map[string]string{
	"action": "hamgr gives the action",
	"option": "hamgr gives the action",
	"plug":   `write plugs = { NODE = ["PLUG"] } beside options`,
	"port":   `write plugs = { NODE = ["PLUG"] } beside options`,
}

// unwanted are options under which an agent would do or say something that cannot be believed, or
// would tell its secrets.
var unwanted = map[string]string{
	"debug":          "would write the secrets to a file",
	"debug_file":     "would write the secrets to a file",
	"help":           "would keep the agent from its work",
	"logfile":        "would keep the agent's words from hamgr",
	"missing_as_off": "would take a plug that does not exist for off",
	"usage":          "would keep the agent from its work",
	"verbose":        "would write the secrets to the system's log",
	"verbose_level":  "would write the secrets to the system's log",
	"version":        "would keep the agent from its work",
}

// Validate checks what can be checked without running the agent. The options are checked against its
// metadata before the first call.
func (o *Options) Validate() error {
	var errs []error
	bad := func(key, msg, cure string) { errs = append(errs, &agents.KeyError{Key: key, Msg: msg, Cure: cure}) }
	if msg, cure := checkCommand(o.Command); msg != "" {
		bad("command", msg, cure)
	}
	if o.See != seesFeed && o.See != seesMachine {
		bad("sees", fmt.Sprintf("%q is not one of its values", o.See), `write "feed" or "machine"`)
	}
	given := map[string]string{}
	for _, name := range o.names() {
		key, folded := "options."+name, strings.ToLower(fold(name))
		value := o.Options[name]
		if s, ok := o.Secrets[name]; ok {
			value = s.Reveal()
		}
		switch {
		case !isName(name):
			bad(key, "is not the name of an option", "")
		case given[folded] != "":
			bad(key, given[folded]+" is given too, which is the same option", "keep one of them")
		case ours[folded] != "":
			bad(key, "is not for the file", ours[folded])
		case folded == "method" && value != onOff:
			bad(key, "hamgr never uses a cycle", "remove it")
		case unwanted[folded] != "":
			bad(key, unwanted[folded], "remove it")
		case strings.ContainsAny(value, "\n\r\x00"):
			bad(key, "holds a line end or a NUL, which no fence agent can be given", "")
		}
		given[folded] = name
	}
	return errors.Join(errs...)
}

// names are the options' names, without the paths of secrets that were read.
func (o *Options) names() []string {
	names := slices.Collect(maps.Keys(o.Options))
	for name := range o.Secrets {
		if !o.isPath(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isPath reports whether a secret is really the path of another one.
func (o *Options) isPath(name string) bool {
	of, ok := strings.CutSuffix(name, "_file")
	_, read := o.Secrets[of]
	return ok && read
}

// Sees says whose power state the device reads, which only the operator knows.
func (o *Options) Sees() agents.Sees {
	if o.See == seesMachine {
		return agents.SeesMachine
	}
	return agents.SeesFeed
}

// Open makes a handle. No program is run before the first call. log may be nil.
func (o *Options) Open(log *slog.Logger) (agents.Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	secrets := make([]string, 0, len(o.Secrets))
	for name, s := range o.Secrets {
		if !o.isPath(name) {
			secrets = append(secrets, s.Reveal())
		}
	}
	return &agent{opts: *o, log: log, censor: newCensor(secrets)}, nil
}

// isSecret reports whether the configuration takes an option of that name for a secret.
func isSecret(name string) bool { return secretNames.MatchString(strings.ToLower(fold(name))) }

// secretNames is the pattern that the configuration uses, which stands in the tag.
var secretNames = func() *regexp.Regexp {
	f, _ := reflect.TypeFor[Options]().FieldByName("Secrets")
	return regexp.MustCompile("^(?:" + f.Tag.Get("secret") + ")$")
}()
