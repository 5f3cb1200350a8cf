package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// mostSecret is the length of the longest secret: the kernel takes no variable above 128 KB.
const mostSecret = 64 << 10

// environ is the environment of a command that bears the mark. It hands down only the harmless part of the daemon's: the rest may
// hold secrets, and the daemon's own contract with its service manager.
func (c *command) environ(who *account, mark string) ([]string, error) {
	vars := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	if who != nil && who.name != "" {
		vars["HOME"], vars["USER"], vars["LOGNAME"] = who.home, who.name, who.name
	}
	maps.Copy(vars, c.opts.Environment)
	for _, name := range slices.Sorted(maps.Keys(c.opts.EnvironmentFiles)) {
		value, err := readSecret(c.opts.EnvironmentFiles[name])
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", name, err)
		}
		vars[name] = value
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	env = append(env, c.env.Environ()...)
	return append(env, mark+c.dir), nil
}

// readSecret does not repeat the value in an error.
func readSecret(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe without a writer hangs nobody
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w; put the value there", resources.ErrNode, err)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(fmt.Errorf("%w: %s is no plain file", resources.ErrSetup, path), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, mostSecret+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(string(b), "\n")
	switch {
	case len(b) > mostSecret:
		return "", fmt.Errorf("%w: %s is longer than %d KB", resources.ErrSetup, path, mostSecret>>10)
	case wrongValue(value):
		return "", fmt.Errorf("%w: %s holds a control character, or no UTF-8", resources.ErrSetup, path)
	}
	return value, nil
}

// checkSecret refuses a file that every user can read. Only a look beforehand does: what has started must be stopped all the same.
func checkSecret(path string) error {
	if _, err := readSecret(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode()&0o007 != 0 {
		err = fmt.Errorf("%w: every user can read or write %s; run: chmod o= %s", resources.ErrSetup, path, path)
	}
	return err
}

// environmentFile writes an environment as systemd.exec(5) reads it, "EnvironmentFile=".
func environmentFile(env []string) ([]byte, error) {
	var b strings.Builder
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if wrongValue(value) {
			return nil, fmt.Errorf("%s holds a control character, or no UTF-8", name)
		}
		fmt.Fprintf(&b, "%s=\"%s\"\n", name, envQuoter.Replace(value))
	}
	return []byte(b.String()), nil
}

var envQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`)
