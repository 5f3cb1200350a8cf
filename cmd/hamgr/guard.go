package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/resources/guard"
)

const defaultGuardDir = "/var/lib/hamgr/guard"

// What shells say of a command that did not run.
const (
	exitNotExecutable = 126
	exitNoCommand     = 127
)

func (c *cli) guardCommand() *cobra.Command {
	var token, dir string
	cmd := &cobra.Command{
		Use:   "guard NAME [--token N] [--dir DIR] -- COMMAND [ARG...]",
		Short: "Run a command that writes, unless its fencing token is out of date",
		Long: `Run a command that writes to NAME, unless its fencing token is out of date: the guard
remembers the highest token that it saw for NAME and refuses lower ones with status 5.
While the command runs, no command with a higher token does. The status is otherwise
that of the command.

DIR must exist, and be the same for everyone who writes to NAME: it belongs on the storage
that is written to, or on the one host that receives the writes.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 || len(args) == dash:
				return errors.New("which command? Put it after `--`")
			case dash != 1:
				return errors.New("exactly one NAME is needed before `--`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if token == "" {
				return usagef("no token: give --token, or run where $HAMGR_TOKEN is set")
			}
			n, err := strconv.ParseUint(token, 10, 64)
			if err != nil {
				return usagef("token %q is no number", token)
			}
			g, err := guard.Open(dir)
			if err != nil {
				return &api.Error{Code: api.ErrFailed, Message: err.Error(), Hint: "the folder must exist, on the storage that is written to: see hamgr guard --help"}
			}
			status, err := g.Run(cmd.Context(), args[0], n, args[1:])
			if err != nil {
				return guardError(err, args[1])
			}
			if status != 0 {
				return &outcome{status: status}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&token, "token", os.Getenv("HAMGR_TOKEN"), "the fencing token; also from $HAMGR_TOKEN")
	cmd.Flags().StringVar(&dir, "dir", envOr("HAMGR_GUARD_DIR", defaultGuardDir), "the guard's folder; also from $HAMGR_GUARD_DIR")
	return cmd
}

func guardError(err error, command string) error {
	var refused *guard.Refused
	switch {
	case errors.As(err, &refused):
		return &api.Error{Code: api.ErrUnsafe, Message: err.Error(), Hint: "the group runs elsewhere by now; this writer must stop"}
	case errors.Is(err, guard.ErrToken), errors.Is(err, guard.ErrName):
		return &usageError{err}
	case errors.Is(err, exec.ErrNotFound), isStartError(err, fs.ErrNotExist):
		return &outcome{exitNoCommand, fmt.Sprintf("%s: command not found", command)}
	case isStartError(err, fs.ErrPermission):
		return &outcome{exitNotExecutable, fmt.Sprintf("%s: permission denied", command)}
	default:
		return err
	}
}

// isStartError tells an error of starting the command from one of the guard's own files.
func isStartError(err, kind error) bool {
	var start *fs.PathError
	return errors.As(err, &start) && start.Op == "fork/exec" && errors.Is(start, kind)
}
