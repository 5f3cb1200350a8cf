package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	defaultKeyFile = "/etc/hamgr/cluster.key"
	defaultDataDir = "/var/lib/hamgr"
	// singleMarker in an empty data folder makes the daemon form a cluster alone, once.
	singleMarker = "form-single"
)

//go:embed sample.toml
var sample []byte

type initOutput struct {
	Schema  int    `json:"schema"`
	KeyFile string `json:"key_file"`
	NewKey  bool   `json:"new_key"`
	Single  string `json:"single,omitempty"` // path of the marker
}

func (c *cli) initCommand() *cobra.Command {
	var (
		keyFile, dataDir    string
		single, printSample bool
	)
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the key of a new cluster",
		Long: `Make the key of a new cluster: the one secret that its nodes share. An existing key is never
overwritten. With --single this node also forms the cluster alone when its daemon starts
next: for a cluster of one node, or whose other nodes are to join later.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if printSample {
				_, err := c.out.Write(sample)
				return err
			}
			return c.init(keyFile, dataDir, single)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key-file", defaultKeyFile, "where the key is written; key_file in hamgr.toml names it")
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir, "this node's data_dir, for --single")
	cmd.Flags().BoolVar(&single, "single", false, "let this node form the cluster alone; keeps a key that exists")
	cmd.Flags().BoolVar(&printSample, "print-sample", false, "print a sample hamgr.toml instead")
	return cmd
}

func (c *cli) init(keyFile, dataDir string, single bool) error {
	out := initOutput{Schema: api.Schema, KeyFile: keyFile, NewKey: true}
	if single { // before the key: a refusal leaves nothing behind
		if err := mustBeFresh(dataDir); err != nil {
			return err
		}
	}
	switch err := newKey(keyFile); {
	case errors.Is(err, fs.ErrExist) && single:
		out.NewKey = false
	case errors.Is(err, fs.ErrExist):
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s exists, and a cluster's key is not overwritten", keyFile),
			Hint: "to add this node to a cluster that exists, copy that cluster's key here instead"}
	case err != nil:
		return fmt.Errorf("write the cluster key: %w", err)
	}
	if single {
		out.Single = filepath.Join(dataDir, singleMarker)
		if err := writeMarker(out.Single); err != nil {
			return fmt.Errorf("mark this node to form the cluster alone: %w", err)
		}
	}
	if c.json {
		return c.printJSON(out)
	}
	c.tellNext(out)
	return nil
}

func (c *cli) tellNext(out initOutput) {
	if out.NewKey {
		c.say("%s holds the key of a new cluster. Who has it can join; keep it secret.", out.KeyFile)
	} else {
		c.say("%s is kept.", out.KeyFile)
	}
	c.say("Next:")
	c.say("  1. write %s (hamgr init --print-sample shows one) and try it: hamgr config check", defaultConfig)
	c.say("  2. copy both files to every node, owner root, mode 0600")
	if out.Single != "" {
		c.say("  3. start this node first, it forms the cluster alone: systemctl enable --now hamgr")
	} else {
		c.say("  3. on every node: systemctl enable --now hamgr")
	}
}

// newKey writes a key file, and its folder if that is missing.
func newKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return newKeyFile(path)
}

// mustBeFresh refuses a data folder in which something is: it may be the log of a cluster
// that lives on elsewhere, and a node that formed another one would be a second truth.
func mustBeFresh(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() != singleMarker {
			return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s is not empty: this node belongs to a cluster already", dir),
				Hint: "hamgr status shows it"}
		}
	}
	return nil
}

func writeMarker(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
