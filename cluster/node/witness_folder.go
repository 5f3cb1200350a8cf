package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/link"
)

// candidate is one file of a witness's folder: a cluster to vote in, or the reason why not.
type candidate struct {
	name    string // of the file, without .toml
	file    string
	key     string // file of the cluster key
	data    string // folder of what this voter remembers
	print   string // changes when the file or the key does
	keyed   string // changes when the key does
	text    string // of the file
	node    string // which one this host is
	cluster string
	listens []netip.AddrPort
	err     error
}

// nameForm is what the name of a file may consist of: it becomes the name of folders and of a socket.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// most is how much of a file is read.
const most = 8 << 20

// witnessKinds are those of a host that only votes.
func witnessKinds() config.Kinds {
	k := Kinds()
	k.Unarmed = true
	return k
}

// look reads the folder: every NAME.toml, with the key that belongs to it.
func (o WitnessOptions) look() ([]candidate, error) {
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of the witness: %w", err)
	}
	here, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".toml")
		if !ok || strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		c := candidate{name: name, file: filepath.Join(o.Dir, e.Name()), data: filepath.Join(o.DataDir, name)}
		c.err = o.read(&c, here)
		all = append(all, c)
	}
	return all, nil
}

// read fills in what the file and its key say.
func (o WitnessOptions) read(c *candidate, here []netip.Addr) error {
	sum := sha256.New()
	defer func() { c.print = string(sum.Sum(nil)) }()
	text, err := readSome(c.file)
	fmt.Fprintf(sum, "%d %s %v\n", len(text), text, err)
	if err != nil {
		return err
	}
	c.text = string(text)
	if !nameForm.MatchString(c.name) {
		return fmt.Errorf("%s: the name of the file names folders and a socket, so use letters, digits, - and _ alone", c.file)
	}
	cfg, err := config.Load(c.file, witnessKinds())
	if err != nil {
		return err
	}
	c.cluster = cfg.Cluster.Name
	named := o.Nodes[c.name]
	if named == "" {
		named = o.Nodes[""]
	}
	if c.node, err = chooseWitness(cfg, named, here); err != nil {
		return err
	}
	c.listens = listens(cfg, c.node)
	if c.key, err = o.keyOf(c.name, cfg); err != nil {
		return err
	}
	key, err := readSome(c.key)
	c.keyed = fmt.Sprintf("%s %x %v", c.key, sha256.Sum256(key), err)
	fmt.Fprintf(sum, "%s %s\n", c.node, c.keyed)
	if err != nil {
		return fmt.Errorf("cluster key: %w; copy the cluster's key to %s, owned by the user that runs the witness, mode 0600", err, o.ownKey(c.name))
	}
	_, err = link.ReadKeyRing(c.key)
	return err
}

// ownKey is where the witness looks for a cluster's key first.
func (o WitnessOptions) ownKey(name string) string { return filepath.Join(o.Dir, name+".key") }

// keyOf is the key file of a cluster: the one beside its configuration, else the one that it names.
func (o WitnessOptions) keyOf(name string, c *config.Config) (string, error) {
	own := o.ownKey(name)
	switch _, err := os.Stat(own); {
	case err == nil:
		return own, nil
	case errors.Is(err, fs.ErrNotExist):
		return c.Cluster.KeyFile, nil
	default:
		return "", fmt.Errorf("cluster key: %w", err)
	}
}

func readSome(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ownAddresses are this host's IP addresses.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var here []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			here = append(here, p.Addr().Unmap())
		}
	}
	return here, nil
}

// settle refuses those that would be in the way of another one. Who runs already comes first, then the order of the
// names counts.
func settle(all []candidate, running func(name string) bool) {
	order := make([]*candidate, 0, len(all))
	for i := range all {
		if all[i].err == nil {
			order = append(order, &all[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *candidate) int {
		switch ra, rb := running(a.name), running(b.name); {
		case ra && !rb:
			return -1
		case rb && !ra:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	for i, c := range order {
		for _, other := range order[:i] {
			if other.err != nil {
				continue
			}
			if c.err = inTheWay(other, c); c.err != nil {
				break
			}
		}
	}
}

// inTheWay says why c cannot be served beside other.
func inTheWay(other, c *candidate) error {
	if other.cluster == c.cluster {
		return fmt.Errorf("%s and %s are both of cluster %q: remove one of them, since no cluster gets two votes of one witness", other.file, c.file, c.cluster)
	}
	if realPath(other.data) == realPath(c.data) {
		return fmt.Errorf("%s and %s would both keep their log in %s: make them two folders", other.file, c.file, realPath(c.data))
	}
	for _, at := range c.listens {
		if slices.Contains(other.listens, at) {
			return fmt.Errorf("%s and %s would both listen on %s: give one cluster another port (on all its nodes), or this host a second address", other.file, c.file, at)
		}
	}
	return nil
}

// realPath follows links, as far as the path is there.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
