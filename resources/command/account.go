package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// account is who runs the commands.
type account struct {
	uid, gid   uint32
	groups     []uint32
	name, home string // empty if only the group is given
}

// account looks user and group up; nil is whoever runs the daemon. A number that nobody has is refused, as systemd does.
func (o *Options) account(ctx context.Context) (*account, error) {
	if o.User == "" && o.Group == "" {
		return nil, nil
	}
	a := &account{uid: uint32(os.Geteuid())}
	if o.User != "" {
		if err := a.readUser(ctx, o.User); err != nil {
			return nil, fmt.Errorf("user %s: %w", o.User, err)
		}
	}
	if o.Group != "" {
		gid, err := lookUpGroup(ctx, o.Group)
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", o.Group, err)
		}
		a.gid = gid
	}
	return a, nil
}

func (a *account) readUser(ctx context.Context, name string) error {
	u, err := lookUpUser(ctx, name)
	if err != nil {
		return err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("its groups: %w", err)
	}
	numbers, err := parse(append([]string{u.Uid, u.Gid}, ids...)...)
	if err != nil {
		return err
	}
	a.uid, a.gid, a.groups, a.name, a.home = numbers[0], numbers[1], numbers[2:], u.Username, u.HomeDir
	return nil
}

func parse(numbers ...string) ([]uint32, error) {
	list := make([]uint32, len(numbers))
	for i, s := range numbers {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n == 1<<32-1 { // which is "no change" to the kernel
			return nil, fmt.Errorf("it has the odd number %q", s)
		}
		list[i] = uint32(n)
	}
	return list, nil
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

// lookUpUser knows the users of /etc/passwd by itself. For those of directories, to which the name service switch leads, getent(1) is asked.
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
		return nil, err
	}
	return &user.User{Username: fields[0], Uid: fields[2], Gid: fields[3], HomeDir: fields[5]}, nil
}

func lookUpGroup(ctx context.Context, name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		g, err = user.LookupGroupId(name)
	}
	if err != nil {
		fields, err := getent(ctx, "group", name, 4)
		if err != nil {
			return 0, err
		}
		g = &user.Group{Gid: fields[2]}
	}
	gid, err := parse(g.Gid)
	if err != nil {
		return 0, err
	}
	return gid[0], nil
}

// getent gives the fields of an entry. Status 2 says that there is none: getent(1).
func getent(ctx context.Context, database, name string, fields int) ([]string, error) {
	var out []byte
	err := process.Ordinarily(func() (err error) {
		out, err = exec.CommandContext(ctx, "getent", database, name).Output()
		return err
	})
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
