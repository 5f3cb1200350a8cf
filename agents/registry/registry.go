// Package registry lists the fence agents that hamgr is built with. A new agent is one
// folder beside this one, and one line here.
package registry

import (
	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/exec"
	"github.com/hamgr/hamgr/agents/ipmi"
	"github.com/hamgr/hamgr/agents/redfish"
	"github.com/hamgr/hamgr/agents/snmp"
)

// Default gives all kinds.
func Default() agents.Registry {
	return agents.NewRegistry(
		exec.Kind(),
		ipmi.Kind(),
		redfish.Kind(),
		snmp.Kind(),
	)
}
