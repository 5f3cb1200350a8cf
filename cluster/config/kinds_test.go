package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/resources"
)

// testKinds are kinds with keys of every supported type.
func testKinds() Kinds {
	return Kinds{
		Agents: agents.NewRegistry(
			agents.Kind{Name: "bmc", Options: func() agents.Options { return &bmcOptions{Port: 63, Verify: true} }},
			agents.Kind{Name: "pdu", Options: func() agents.Options { return &pduOptions{} }},
		),
		Resources: resources.NewRegistry(
			resources.Kind{Name: "mount", Options: func() resources.Options { return &mountOptions{FSType: "auto"} }},
			resources.Kind{Name: "process", Options: func() resources.Options { return &processOptions{Wait: 5 * time.Second} }},
		),
	}
}

type bmcOptions struct {
	Address  string        `toml:"address" doc:"host of the BMC"`
	Port     uint8         `toml:"port" doc:"UDP port"`
	Username string        `toml:"username" doc:"account"`
	Password agents.Secret `toml:"password" doc:"its password"`
	Verify   bool          `toml:"verify" doc:"check the certificate"`
}

func (o *bmcOptions) Sees() agents.Sees { return agents.SeesMachine }

func (o *bmcOptions) Validate() error {
	var errs []error
	if o.Address == "" {
		errs = append(errs, &agents.KeyError{Key: "address", Msg: "is missing", Cure: "write the BMC's address"})
	}
	if o.Username == "" {
		errs = append(errs, &agents.KeyError{Key: "username", Msg: "is missing"})
	}
	if o.Password.IsZero() {
		errs = append(errs, &agents.KeyError{Key: "password", Msg: "is missing", Cure: "add password_file"})
	}
	if len(o.Password.Reveal()) > 20 {
		errs = append(errs, &agents.KeyError{Key: "password", Msg: "is longer than 20 bytes", Cure: "set a shorter one"})
	}
	return errors.Join(errs...)
}

func (o *bmcOptions) Open(*slog.Logger) (agents.Agent, error) {
	return nil, errors.New("not in this test")
}

type pduOptions struct {
	Address string `toml:"address" doc:"host of the PDU"`
}

// Plug spells "3" and "3=name" alike.
func (o *pduOptions) Plug(plug string) (string, error) {
	number, _, _ := strings.Cut(plug, "=")
	if number == "0" {
		return "", errors.New("outlets are counted from 1")
	}
	return number, nil
}

func (o *pduOptions) Validate() error { return nil }
func (o *pduOptions) Open(*slog.Logger) (agents.Agent, error) {
	return nil, errors.New("not in this test")
}

type mountOptions struct {
	Device     string   `toml:"device" doc:"block device"`
	Mountpoint string   `toml:"mountpoint" doc:"where it is mounted"`
	FSType     string   `toml:"fstype" doc:"file system"`
	Options    []string `toml:"options" doc:"mount options"`
}

// Validate joins at two depths, and wraps, as a kind may.
func (o *mountOptions) Validate() error {
	var errs []error
	for _, opt := range o.Options {
		if strings.Contains(opt, ",") {
			errs = append(errs, &resources.KeyError{Key: "options", Msg: "has a comma", Cure: "write one option a string"})
		}
	}
	inner := errors.Join(errs...)
	var outer error
	if !filepath.IsAbs(o.Mountpoint) {
		outer = fmt.Errorf("mount: %w", &resources.KeyError{Key: "mountpoint", Msg: "is not an absolute path"})
	}
	if inner == nil && outer == nil {
		return nil
	}
	return fmt.Errorf("checking: %w", errors.Join(inner, outer))
}

func (o *mountOptions) Exclusive() (key, what string) { return "device", o.Device }

func (o *mountOptions) New(resources.Env) (resources.Resource, error) {
	return nil, errors.New("not in this test")
}

type processOptions struct {
	Run    []string          `toml:"run" doc:"program and arguments"`
	Env    map[string]string `toml:"env" doc:"environment"`
	Wait   time.Duration     `toml:"wait" doc:"time to wait"`
	Shared bool              `toml:"shared" doc:"another group may do the same"`
}

func (o *processOptions) Validate() error {
	if len(o.Run) == 0 {
		return errors.New("no program is given")
	}
	return nil
}

func (o *processOptions) Exclusive() (key, what string) {
	if o.Shared {
		return "", ""
	}
	return "run", fmt.Sprintf("%q %q", o.Run, o.Env)
}

func (o *processOptions) New(resources.Env) (resources.Resource, error) {
	return nil, errors.New("not in this test")
}
