package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hamgr/hamgr/resources"
)

// account is who runs the commands.
type account struct {
	uid, gid   uint32
	groups     []uint32
	name, home string // empty if only the group is given
}

// account looks user and group up; nil is whoever runs the daemon.
func (o *Options) account(ctx context.Context) (*account, error) {
	if o.User == "" && o.Group == "" {
		return nil, nil
	}
	a := &account{uid: uint32(os.Geteuid())}
	if o.User != "" {
		if err := a.readUser(ctx, o.User, o.Group != ""); err != nil {
			return nil, err
		}
	}
	if o.Group != "" {
		gid, err := lookUpGroup(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		a.gid = gid
	}
	return a, nil
}

func (a *account) readUser(ctx context.Context, name string, hasGroup bool) error {
	u, err := lookUpUser(ctx, name)
	if err != nil {
		uid, ok := number(name)
		if !ok || ctx.Err() != nil {
			return err
		}
		if !hasGroup {
			return fmt.Errorf("%w: user %s is not known here, so its group is not either; write group, too", resources.ErrSetup, name)
		}
		a.uid, a.name, a.home = uid, name, "/"
		return nil
	}
	uid, okUser := number(u.Uid)
	gid, okGroup := number(u.Gid)
	if !okUser || !okGroup {
		return fmt.Errorf("user %s has the odd numbers %q and %q", name, u.Uid, u.Gid)
	}
	a.uid, a.gid, a.name, a.home = uid, gid, u.Username, u.HomeDir
	ids, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("groups of user %s: %w", name, err)
	}
	for _, id := range ids {
		if gid, ok := number(id); ok && !slices.Contains(a.groups, gid) {
			a.groups = append(a.groups, gid)
		}
	}
	return nil
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1 // which is "no change" to the kernel
}

// lookUpUser knows the users of /etc/passwd by itself. For those of directories, which the name service switch leads to, getent(1) is asked.
func lookUpUser(ctx context.Context, name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err == nil {
		return u, nil
	}
	fields, err := getent(ctx, "passwd", name, 7)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return &user.User{Username: fields[0], Uid: fields[2], Gid: fields[3], HomeDir: fields[5]}, nil
}

func lookUpGroup(ctx context.Context, name string) (uint32, error) {
	id := name
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	} else if _, ok := number(name); !ok {
		fields, err := getent(ctx, "group", name, 4)
		if err != nil {
			return 0, fmt.Errorf("group %s: %w", name, err)
		}
		id = fields[2]
	}
	gid, ok := number(id)
	if !ok {
		return 0, fmt.Errorf("group %s has the odd number %q", name, id)
	}
	return gid, nil
}

// getent gives the fields of an entry. Status 2 says that there is none: getent(1).
func getent(ctx context.Context, database, name string, fields int) ([]string, error) {
	out, err := exec.CommandContext(ctx, "getent", database, name).Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &exit) && exit.ExitCode() == 2:
		return nil, fmt.Errorf("%w: it does not exist on this host; create it, or correct the name", resources.ErrNode)
	case err != nil:
		return nil, fmt.Errorf("look it up by getent: %w", err)
	}
	entry := strings.Split(strings.TrimSpace(string(out)), ":")
	if len(entry) != fields {
		return nil, fmt.Errorf("getent answers %q", out)
	}
	return entry, nil
}
