package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// oneArg demands the one argument that the usage names.
func oneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		what, _, _ := strings.Cut(strings.TrimPrefix(cmd.Use, cmd.Name()+" "), " ")
		return misused(cmd, what+" is missing")
	}
	return atMostOneArg(cmd, args)
}

func atMostOneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return misused(cmd, fmt.Sprintf("%q is one argument too many", args[1]))
	}
	return nil
}

func misused(cmd *cobra.Command, what string) error {
	return &api.Error{Code: api.ErrInvalid, Message: strings.TrimPrefix(cmd.CommandPath(), "hamgr ") + ": " + what, Hint: "usage: " + cmd.UseLine()}
}
