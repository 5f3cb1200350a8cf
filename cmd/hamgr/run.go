package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// daemonOptions are what `hamgr run` hands to the daemon.
type daemonOptions struct {
	configPath string
	node       string // empty: the host's name
	dataDir    string // empty: the configuration's
	keyFile    string // empty: the configuration's
	socket     string
	bootID     string           // empty: the kernel's
	reload     <-chan os.Signal // has the file of the cluster key read again
	log        *slog.Logger
}

func (c *cli) runCommand() *cobra.Command {
	var (
		o             daemonOptions
		level, format string
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon of this node",
		Long: "Run the daemon of this node, in the foreground, until SIGTERM. It logs to standard error. The file of the cluster key is\n" +
			"followed: it is looked at every few seconds, and on SIGHUP at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(c.err, level, format)
			if err != nil {
				return err
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			o.log, o.socket, o.reload = log, c.socket, reload
			if o.keyFile != "" {
				if o.keyFile, err = filepath.Abs(o.keyFile); err != nil {
					return err
				}
			}
			return runError(runDaemon(cmd.Context(), o))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.configPath, "config", defaultConfig, "the configuration file")
	flags.StringVar(&o.node, "node", "", "this node's name in the configuration (default: the first part of the host's name)")
	flags.StringVar(&o.dataDir, "data-dir", "", "folder of the replicated log (default: data_dir of the configuration)")
	flags.StringVar(&o.keyFile, "key-file", "", "the file of the cluster key (default: key_file of the configuration)")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&format, "log-format", "json", "json or text")
	flags.StringVar(&o.bootID, "boot-id", "", "stand-in for the kernel's boot ID; for several nodes on one host")
	flags.MarkHidden("boot-id")
	return cmd
}

// runError makes a wrong configuration a usage error: its status tells the service
// manager that another try is useless.
func runError(err error) error {
	var problems config.Errors
	if errors.As(err, &problems) {
		return &api.Error{Code: api.ErrInvalid, Message: err.Error(), Hint: "hamgr config check shows all of it"}
	}
	return err
}

func newLog(w io.Writer, level, format string) (*slog.Logger, error) {
	var o slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("log level %q is none of debug, info, warn, error", level)
	}
	o.Level = l
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, &o)), nil
	default:
		return nil, usagef("log format %q is none of json, text", format)
	}
}
