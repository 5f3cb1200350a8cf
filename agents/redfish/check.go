package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Check tells by reading alone whether an off would go through: that the plug's system is there
// and is a host, that a forced off is offered and its target is at this BMC, and that the account
// may reset. Of what the BMC does not show it says nothing.
func (a *agent) Check(ctx context.Context, plug string) error {
	return a.fail(ctx, "checking", a.check(ctx, plug))
}

func (a *agent) check(ctx context.Context, plug string) error {
	s, err := a.system(ctx, plug)
	if err != nil {
		return err
	}
	if _, err := a.pick(ctx, s, pickOff); err != nil {
		return err
	}
	if _, err := a.base.reference(s.target); err != nil {
		return fmt.Errorf("the target of the reset: %w", err)
	}
	return a.checkRight(ctx)
}

// right is whether an account or a role may reset.
type right int

const (
	untold right = iota
	granted
	denied
)

// rightPatience is what the search for the account's right may cost. It is many small reads.
const rightPatience = 10 * time.Second

// checkRight looks for the account's right to reset. Most BMCs show an account at least its own
// role; those that do not are given the benefit of the doubt.
func (a *agent) checkRight(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, rightPatience)
	defer cancel()
	r, role, err := a.sessionRight(limited)
	if err == nil && r == untold {
		r, role, err = a.accountRight(limited)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrPasswordChange):
		return err
	case err != nil:
		a.log.DebugContext(ctx, "the account's right is not shown", "err", err)
		return nil
	case r == denied:
		return fmt.Errorf("%w: its role is %s", ErrPrivilege, word(role))
	}
	return nil
}

// sessionRight reads the roles of our own session (Session, 1.7 and later).
func (a *agent) sessionRight(ctx context.Context) (right, string, error) {
	if a.login == nil || a.client == nil {
		return untold, "", nil
	}
	s, err := a.client.GetSession()
	if err != nil {
		return untold, "", nil // it has no name, so it cannot be read
	}
	session, err := a.object(ctx, s.ID)
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrPrivilege) || errors.Is(err, ErrNotRedfish) {
		return untold, "", nil
	}
	if err != nil {
		return untold, "", err
	}
	roles := words(session["Roles"])
	if len(roles) != 1 {
		return untold, "", nil
	}
	return predefined(roles[0]), roles[0], nil
}

// accountRight finds the account by its name, and reads its role.
func (a *agent) accountRight(ctx context.Context) (right, string, error) {
	root, err := a.object(ctx, rootURI)
	if err != nil || link(root, "AccountService") == "" {
		return untold, "", err
	}
	service, err := a.object(ctx, link(root, "AccountService"))
	if err != nil {
		return untold, "", err
	}
	accounts, err := a.collection(ctx, link(service, "Accounts"))
	if err != nil {
		return untold, "", err
	}
	for _, uri := range accounts {
		account, err := a.object(ctx, uri)
		if errors.Is(err, ErrPrivilege) {
			continue // another's, which is not for us to read
		}
		if err != nil {
			return untold, "", err
		}
		if text(account, "UserName") != a.opts.Username {
			continue
		}
		role := text(account, "RoleId")
		if r := predefined(role); r != untold {
			return r, role, nil
		}
		r, err := a.roleRight(ctx, account, link(service, "Roles"))
		return r, role, err
	}
	return untold, "", nil // an account of a directory service
}

// roleRight reads a role of the BMC's own.
func (a *agent) roleRight(ctx context.Context, account map[string]json.RawMessage, roles string) (right, error) {
	links, _ := fields(account["Links"]) // where there are none, link gives none
	ref := link(links, "Role")
	if ref == "" {
		if roles == "" || text(account, "RoleId") == "" {
			return untold, nil
		}
		ref = path.Join(roles, path.Base(text(account, "RoleId")))
	}
	role, err := a.object(ctx, ref)
	if err != nil {
		return untold, err
	}
	return rightOf(role), nil
}

// predefined knows the roles whose privileges DSP0266 fixes ("Roles").
func predefined(role string) right {
	switch role {
	case "Administrator", "Operator":
		return granted
	case "ReadOnly":
		return denied
	}
	return untold
}

// rightOf reads a Role document. A reset of a system needs ConfigureComponents (DSP0266, "Privilege
// model"; the privilege registry of DSP8011), or OperateSystems since 2022.2. A role with
// privileges of the maker's may have one for the power among them.
func rightOf(role map[string]json.RawMessage) right {
	assigned := words(role["AssignedPrivileges"])
	for _, p := range []string{"ConfigureComponents", "OperateSystems", "AdministrateSystems"} {
		if slices.Contains(assigned, p) {
			return granted
		}
	}
	if oem := string(role["OemPrivileges"]); assigned == nil || oem != "" && oem != "null" && oem != "[]" {
		return untold
	}
	return denied
}
