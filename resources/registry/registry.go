// Package registry lists the resource kinds of the shipped daemon. A new kind is one
// line here.
package registry

import (
	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/address"
	"github.com/hamgr/hamgr/resources/command"
	"github.com/hamgr/hamgr/resources/filesystem"
	"github.com/hamgr/hamgr/resources/lvm"
	"github.com/hamgr/hamgr/resources/ocf"
	"github.com/hamgr/hamgr/resources/systemd"
)

// Default returns a new registry with every kind.
func Default() resources.Registry {
	return resources.NewRegistry(
		address.Kind(),
		command.Kind(),
		filesystem.Kind(),
		lvm.Kind(),
		ocf.Kind(),
		systemd.Kind(),
	)
}
