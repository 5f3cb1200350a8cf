package ocf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// name is an agent's: its provider, and its type, which is the name of its file.
type name struct{ provider, kind string }

func (n name) String() string { return "ocf:" + n.provider + ":" + n.kind }

// path is where the agent's program is (API 1.1, The Resource Agent Directory Tree).
func (n name) path(root string) string {
	return filepath.Join(root, "resource.d", n.provider, n.kind)
}

// parseName takes ocf:heartbeat:IPaddr2 and heartbeat:IPaddr2.
func parseName(s string) (name, error) {
	if s == "" {
		return name{}, errors.New("no agent is named")
	}
	parts := strings.Split(strings.TrimPrefix(s, "ocf:"), ":")
	if len(parts) != 2 || !isFile(parts[0]) || !isFile(parts[1]) {
		return name{}, fmt.Errorf("%q is no name of an OCF agent", clip(s, mostName))
	}
	if slices.Contains([]string{"lsb", "service", "systemd", "stonith", "upstart"}, parts[0]) {
		return name{}, fmt.Errorf("%q is no OCF agent, but one of the class %s", clip(s, mostName), parts[0])
	}
	return name{parts[0], parts[1]}, nil
}

// isFile reports whether s can be the name of an agent's file: visible, and without odd characters.
func isFile(s string) bool {
	return s != "" && len(s) <= mostName && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return !isLetter(r) && !strings.ContainsRune("_-.+", r)
	})
}

// isName reports whether s can be a part of an environment variable's name.
func isName(s string) bool {
	return s != "" && len(s) <= mostName && !strings.ContainsFunc(s, func(r rune) bool { return !isLetter(r) && r != '_' })
}

func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// look tells whether the program may be run.
func (n name) look(root string) (os.FileInfo, error) {
	info, err := os.Stat(n.path(root))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		cure := ""
		if n.provider == "heartbeat" {
			cure = " (package resource-agents)"
		}
		return nil, fmt.Errorf("%w: %s is not installed%s", resources.ErrNode, n.path(root), cure)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return nil, fmt.Errorf("%w: %s is no program", resources.ErrSetup, n.path(root))
	case info.Mode()&0o002 != 0:
		return nil, fmt.Errorf("%w: every user can write %s; chmod o-w", resources.ErrSetup, n.path(root))
	}
	return info, nil
}

// programs lists the agents that are installed.
func programs(root string) []string {
	files, _ := filepath.Glob(filepath.Join(root, "resource.d", "*", "*")) // the pattern is a good one, so there is no error
	var names []string
	for _, file := range files {
		n := name{filepath.Base(filepath.Dir(file)), filepath.Base(file)}
		if !isFile(n.provider) || !isFile(n.kind) {
			continue
		}
		if _, err := n.look(root); err == nil {
			names = append(names, n.String())
		}
	}
	slices.Sort(names)
	return names
}
