package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

type versionOutput struct {
	Schema   int    `json:"schema"`
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified"` // built from a tree with changes that are not in Commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if c.json {
				return c.printJSON(v)
			}
			fmt.Fprintf(c.out, "hamgr %s", v.Version)
			if v.Commit != "" {
				fmt.Fprintf(c.out, ", commit %.12s", v.Commit)
			}
			if v.Modified {
				fmt.Fprint(c.out, " with changes")
			}
			fmt.Fprintf(c.out, ", schema %d, %s, %s\n", v.Schema, v.Go, v.Platform)
			return nil
		},
	}
}

// version is what the Go linker knows of this binary.
func version() versionOutput {
	v := versionOutput{Schema: api.Schema, Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
