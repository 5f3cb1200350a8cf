package ocf

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// sharedTmp is where the agents of Debian, Fedora and SUSE keep what must not survive the kernel. It is shared: agents
// lock each other out there, and an operator who runs one by hand finds the same things.
const sharedTmp = "/run/resource-agents"

// defaultTimeout is what agents are told where there is no deadline: some calculate with it.
const defaultTimeout = 20 * time.Second

// call is one action that is asked of the agent.
type call struct {
	action   string
	depth    int
	interval time.Duration // zero for everything but a recurring monitor
}

// basicEnviron is what every run has, meta-data included (API 1.1, Global OCF Attributes). Nothing of the
// daemon's own environment is handed down. Without HA_LOGFACILITY and HA_LOGFILE the agents log to standard error.
func basicEnviron(root string, n name) []string {
	return []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C",
		"HOME=/",
		"OCF_ROOT=" + root,
		"OCF_RA_VERSION_MAJOR=1",
		"OCF_RA_VERSION_MINOR=1",
		"OCF_RESOURCE_TYPE=" + n.kind,
		"OCF_RESOURCE_PROVIDER=" + n.provider,
	}
}

// environ is that of one run.
func (o *ocf) environ(ctx context.Context, c call) (env, secrets []string, err error) {
	params, secrets, err := o.params()
	if err != nil {
		return nil, nil, err
	}
	env = append(basicEnviron(o.opts.Root, o.name),
		"HA_RSCTMP="+o.tmp,
		"OCF_RESOURCE_INSTANCE="+instance(o.env.Group, o.env.Resource),
		// Pacemaker's additions to the API, those that agents read: times in milliseconds.
		"OCF_RESKEY_CRM_meta_name="+c.action,
		"OCF_RESKEY_CRM_meta_interval="+millis(c.interval),
		"OCF_RESKEY_CRM_meta_on_node="+o.env.Node,
		"OCF_RESKEY_CRM_meta_on_node_uuid="+o.env.Node,
	)
	timeout := defaultTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = max(0, time.Until(end))
	}
	env = append(env, "OCF_RESKEY_CRM_meta_timeout="+millis(timeout))
	if c.action == "monitor" || c.action == "validate-all" {
		env = append(env, "OCF_CHECK_LEVEL="+strconv.Itoa(c.depth))
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		env = append(env, "OCF_RESKEY_"+name+"="+params[name])
	}
	env = append(env, o.env.Environ()...)
	return append(env, dirVariable+o.env.Dir), secrets, nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// params are the parameters with the values of those that are kept in files.
func (o *ocf) params() (params map[string]string, secrets []string, err error) {
	params = maps.Clone(o.opts.Params)
	if params == nil {
		params = map[string]string{}
	}
	for name, path := range o.opts.ParamFiles {
		value, err := readValue(path)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: parameter %s: %w", resources.ErrSetup, name, err)
		}
		params[name] = value
		secrets = append(secrets, value)
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // none leaves a rest of another
	return params, secrets, nil
}

func readValue(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > mostValue {
		return "", fmt.Errorf("%s is no file of at most %d KB", path, mostValue>>10)
	}
	if info.Mode()&0o007 != 0 {
		return "", fmt.Errorf("every user can read or write %s; chmod o= %s", path, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(string(b), "\n")
	if len(value) > mostValue || strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("%s is too long, or holds a NUL byte", path)
	}
	return value, nil
}

// secretWords end the names of parameters that are secret, such as replication_passwd.
var secretWords = []string{"password", "passwd", "pass", "passphrase", "secret", "community", "token", "apikey", "api_key", "access_key", "secret_key"}

func soundsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.HasSuffix(name, word) })
}

// instance is the name of a resource that is unique on the host, on every node the same. Agents make it a part
// of the names of their state files: two resources with one name would share their state. A _ in a name is
// doubled, and no name begins with one, so a single or odd last _ is the one between the two.
func instance(group, resource string) string {
	safe := func(s string) string {
		return strings.ReplaceAll(strings.Map(func(r rune) rune {
			if isLetter(r) || strings.ContainsRune("._-", r) {
				return r
			}
			return '-'
		}, s), "_", "__")
	}
	return safe(group) + "_" + safe(resource)
}
