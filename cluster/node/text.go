package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hamgr/hamgr/cluster/config"
)

// textFile keeps, in the data directory, the configuration that the cluster last had this daemon run with.
const textFile = "hamgr.toml"

// loadConfig gives what this daemon starts with: the cluster's configuration as it last knew it, else the file. The
// file seeds a cluster, and no more than that.
func loadConfig(o Options) (*config.Config, string, error) {
	kinds := o.kinds()
	text, err := os.ReadFile(o.ConfigPath)
	if err != nil {
		_, err := config.Load(o.ConfigPath, kinds) // it says it as an operator needs it
		return nil, "", err
	}
	c, problems := config.Load(o.ConfigPath, kinds)
	if _, err := config.CheckText(o.ConfigPath, text, kinds); problems == nil && err != nil {
		o.Log.Warn("the cluster cannot take over this file, so that hamgr config apply will be refused", "file", o.ConfigPath, "err", err)
		text = nil
	}
	dir := o.DataDir
	if dir == "" && problems == nil {
		dir = c.Cluster.DataDir
	}
	if dir == "" {
		return nil, "", problems
	}
	kept, err := os.ReadFile(filepath.Join(dir, textFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(kept, text) {
		return c, string(text), problems
	}
	if err != nil {
		return nil, "", fmt.Errorf("the cluster's configuration as last known: %w", err)
	}
	known, err := config.LoadBytes(filepath.Join(dir, textFile), kept, kinds)
	if err != nil {
		return nil, "", fmt.Errorf("%w (the cluster's configuration as this node last knew it; if the cluster is gone, remove that file and %s counts)", err, o.ConfigPath)
	}
	if problems == nil && known.Cluster.Name != c.Cluster.Name {
		return nil, "", fmt.Errorf("%s is of cluster %q, but this node's data in %s is of cluster %q: empty that folder to let the node join another cluster", o.ConfigPath, c.Cluster.Name, dir, known.Cluster.Name)
	}
	o.Log.Info("running with the cluster's configuration, from which the file differs", "file", o.ConfigPath, "kept", filepath.Join(dir, textFile))
	return known, string(kept), nil
}

// keepText remembers the configuration that the daemon now runs with. This host's own file follows, if it is what the
// daemon ran with before: what somebody is writing there is not touched.
func keepText(old, now Setup) {
	if now.Text == "" || now.Text == old.Text {
		return
	}
	if err := replaceFile(filepath.Join(now.DataDir, textFile), now.Text, 0o600); err != nil {
		now.Log.Error("the configuration is not kept: after a restart this node begins with the one before, until it hears of this one", "node", now.Self, "err", err)
	}
	if now.File == "" {
		return
	}
	if b, err := os.ReadFile(now.File); err != nil || string(b) != old.Text {
		now.Log.Warn("the file on this host is left as it is: it is not what the cluster had before", "node", now.Self, "file", now.File)
		return
	}
	follow(now.Log, now.File, now.Text)
}

func follow(log *slog.Logger, path, text string) {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := replaceFile(path, text, mode); err != nil {
		log.Warn("the file on this host is not brought up to date", "file", path, "err", err)
	}
}

// replaceFile leaves the old content or the new one, whatever happens, and the new one once it returned: what is to be done
// is kept by it before it is done (S6).
func replaceFile(path, text string, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".hamgr-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path)) // a new name is lost with the power until its folder is on the disk
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
