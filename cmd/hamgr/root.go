package main

import (
	"context"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	defaultSocket = "/run/hamgr/hamgr.sock"
	defaultConfig = "/etc/hamgr/hamgr.toml"
)

// cli is one run of the program.
type cli struct {
	in  io.Reader
	out io.Writer // data
	err io.Writer // talk
	// interactive: somebody can answer questions on in.
	interactive bool

	socket string
	json   bool

	started bool   // the command line was understood
	help    string // how the command tells its usage; empty: hamgr help
}

// run carries out one command line and gives the exit status.
func (c *cli) run(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	cmd, err := root.ExecuteContextC(ctx)
	if cmd != root {
		c.help = cmd.CommandPath() + " --help"
	}
	if err != nil && !c.started {
		c.json = c.json || slices.Contains(args, "--json") // parsing may have ended before it
		err = &usageError{err}
	}
	return c.end(err)
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "hamgr",
		Short:         "keeps services running on a cluster of hosts that share storage",
		Long:          "hamgr keeps services running on a small group of hosts that share storage: when a host fails,\nthe others cut its power, see that it is really off, and only then run its services elsewhere.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			c.started = true
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.socket, "socket", envOr("HAMGR_SOCKET", defaultSocket), "the daemon's unix socket; also from $HAMGR_SOCKET")
	flags.BoolVar(&c.json, "json", false, "print one JSON object, as written in docs/cli.md")
	root.AddCommand(
		c.agentCommand(), c.resourceCommand(),
		c.configCommand(),
		newDemoCommand(),
		c.fenceCommand(),
		c.groupCommand(),
		c.guardCommand(),
		c.initCommand(),
		c.keyCommand(),
		c.labCommand(),
		c.maintenanceCommand(),
		c.nodeCommand(),
		c.quorumCommand(),
		c.runCommand(),
		c.statusCommand(),
		c.versionCommand(),
		c.watchdogCommand(),
		c.witnessCommand(),
	)
	return root
}

// client asks the daemon of this host.
func (c *cli) client() *api.Client { return api.NewClient(api.DialUnix(c.socket)) }

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
