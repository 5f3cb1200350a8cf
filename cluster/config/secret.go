package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/hamgr/hamgr/agents"
)

// unread stands for a secret that Parse does not fetch. It has a length that every
// protocol accepts, so that the check of the other keys can go on.
const unread = "not-read"

// maxSecret bounds a secret's file.
const maxSecret = 64 << 10

// sources are where secrets come from. Parse has none.
type sources struct {
	// shared says that others can read the configuration file.
	shared bool
	mode   fs.FileMode
	// committed says that the text is the cluster's, or is to become it: every node has it.
	committed bool
	// unread says that secrets elsewhere are not fetched.
	unread bool
}

// origin is where a secret comes from: what the suffix of its key says, and the file, variable or credential; never
// the secret.
type origin struct{ suffix, from string }

// The suffixes of a secret's key, and what they point to.
var variants = []string{"", "_file", "_env", "_credential"}

// secret fills the secret of key f from the one variant that was written.
func (r *reader) secret(t *table, f field) {
	var used []string
	for _, key := range t.written() {
		for _, suffix := range variants {
			if key == f.key+suffix {
				used = append(used, key)
			}
		}
	}
	if len(used) == 0 {
		return
	}
	if len(used) > 1 {
		t.settled[f.key] = true
		r.problem(t, used[len(used)-1], fmt.Sprintf("%s is given too: one secret, one source", strings.Join(used[:len(used)-1], ", ")),
			"keep one of them")
		return
	}
	key := used[0]
	text, ok := t.keys[key].data.(string)
	if !ok {
		t.settled[f.key] = true
		r.problem(t, key, "is "+t.keys[key].found()+", but a string is wanted", "put it in quotes")
		return
	}
	suffix := strings.TrimPrefix(key, f.key)
	value, msg, cure := r.fetch(f.key, suffix, text)
	if msg != "" {
		t.settled[f.key] = true
		r.problem(t, key, msg, cure)
		return
	}
	f.val.Set(reflect.ValueOf(agents.NewSecret(value)))
	from := origin{suffix, text}
	if suffix == "" {
		from.from = ""
	}
	r.origins[t.key(f.key)] = from
}

// secretPart moves the secrets of a table of strings to the field for them. A name that matches
// the field's pattern is a secret, and may have a suffix, which then says where it is kept; what
// is read goes by the name alone. A NAME_file is kept as it was written, too: only the program
// that the table is for can tell whether it has an option of that name itself.
func (r *reader) secretPart(t *table, fields []field, f field) {
	v, ok := t.keys[f.key]
	if !ok {
		return
	}
	sub, ok := asTable(v, t.label)
	if !ok {
		return // the other part has reported it
	}
	sub.inner = f.key + "."
	plain := fields[slices.IndexFunc(fields, func(o field) bool { return o.key == f.key })].val.Interface().(map[string]string)
	isSecret := regexp.MustCompile("^(?:" + f.secret + ")$")
	secrets := map[string]agents.Secret{}
	for _, key := range sub.written() {
		name, suffix := secretName(key)
		if !isSecret.MatchString(fold(name)) {
			continue
		}
		delete(plain, key)
		if _, done := secrets[name]; done || sub.settled[name] {
			continue
		}
		var s agents.Secret
		r.secret(sub, field{key: name, val: reflect.ValueOf(&s).Elem()})
		if sub.settled[name] {
			continue
		}
		secrets[name] = s
		if text, ok := sub.keys[key].data.(string); ok && suffix == "_file" {
			secrets[key] = agents.NewSecret(text)
		}
	}
	for key := range sub.settled {
		t.settled[sub.inner+key] = true
	}
	f.val.Set(reflect.ValueOf(secrets))
}

// secretName takes the suffix off a key, if it has one.
func secretName(key string) (name, suffix string) {
	for _, suffix := range variants[1:] {
		if name, ok := strings.CutSuffix(key, suffix); ok && name != "" {
			return name, suffix
		}
	}
	return key, ""
}

// fetches reports whether secrets that are kept elsewhere are read.
func (r *reader) fetches() bool { return r.sources != nil && !r.sources.unread && !r.kinds.Unarmed }

// fetch gets the bytes of a secret. The message never holds any of them.
func (r *reader) fetch(key, suffix, text string) (value, msg, cure string) {
	if text == "" {
		return "", "is empty", fmt.Sprintf("write the secret to a file and name it in %s_file", key)
	}
	switch suffix {
	case "":
		if r.sources != nil && r.sources.committed {
			return "", "a secret stands in the configuration itself, which every node gets and keeps in its log",
				fmt.Sprintf("write it to a file of its own on every node, with mode 0600, and name that in %s_file", key)
		}
		if r.sources != nil && r.sources.shared {
			return "", fmt.Sprintf("a secret stands in a file that others can read (mode %04o)", r.sources.mode),
				fmt.Sprintf("move it to a file of its own and name that in %s_file, or: chmod 600 %s", key, quoteShell(r.file))
		}
		return text, "", ""
	case "_file":
		if !filepath.IsAbs(text) {
			return "", fmt.Sprintf("%q is not an absolute path", text), "write the path from / on"
		}
		if !r.fetches() {
			return unread, "", ""
		}
		return readSecret(text)
	case "_env":
		if !r.fetches() {
			return unread, "", ""
		}
		value, ok := os.LookupEnv(text)
		if !ok || value == "" {
			return "", fmt.Sprintf("the environment variable %q is not set or empty", text), "set it for the daemon, or use " + key + "_file"
		}
		return value, "", ""
	default:
		return r.credential(key, text)
	}
}

// credential reads what systemd hands over (LoadCredential=, SetCredentialEncrypted=;
// systemd.exec(5)). Its folder is private to the service.
func (r *reader) credential(key, name string) (value, msg, cure string) {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return "", fmt.Sprintf("%q is not the name of a credential", name), "write the name alone, as in LoadCredential=NAME:PATH"
	}
	if !r.fetches() {
		return unread, "", ""
	}
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return "", "there are no systemd credentials here ($CREDENTIALS_DIRECTORY is not set)",
			fmt.Sprintf("start hamgr by its unit, with LoadCredential=%s:PATH; elsewhere use %s_file", name, key)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err != nil {
		return "", fmt.Sprintf("the credential %q cannot be read: %v", name, reason(err)), fmt.Sprintf("add LoadCredential=%s:PATH to the unit", name)
	}
	return readSecret(path)
}

// readSecret reads a file byte for byte, but for one newline at its end, which
// editors and echo add.
func readSecret(path string) (value, msg, cure string) {
	unreadable := func(err error) (string, string, string) {
		cure = "make it readable for the user that runs hamgr"
		if errors.Is(err, fs.ErrNotExist) {
			cure = "write the secret into it, with mode 0600"
		}
		return "", fmt.Sprintf("%q cannot be read: %v", path, reason(err)), cure
	}
	// A pipe must not hold up who looks at what it is.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unreadable(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return unreadable(err)
	case !info.Mode().IsRegular():
		return "", fmt.Sprintf("%q is not a file", path), "name the file that holds the secret"
	case info.Mode().Perm()&0o007 != 0:
		return "", fmt.Sprintf("%q is open to all users (mode %04o)", path, info.Mode().Perm()), "run: chmod 600 " + quoteShell(path)
	case info.Size() > maxSecret:
		return "", fmt.Sprintf("%q is too large for a secret", path), "name the file that holds the secret"
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return unreadable(err)
	}
	value = strings.TrimSuffix(string(b), "\n")
	if value == "" {
		return "", fmt.Sprintf("%q is empty", path), "write the secret into it"
	}
	return value, "", ""
}

// reason is the error without the path, which the sentence has already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// quoteShell quotes a path for a command to copy, where that is needed.
func quoteShell(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// inline lists the keys whose secrets stand in the text.
func (c *Config) inline() []string {
	var keys []string
	for key, from := range c.origins {
		if from.suffix == "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
