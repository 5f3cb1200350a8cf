package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// switchOnly is a machine that can be switched off, and not on again.
type switchOnly struct{ *redfishsim.Switch }

func (switchOnly) On(context.Context) error { return nil }

// startBMC is `bmc FILE [lies|stays-off|locked]`: a BMC, and a configuration whose node gamma is fenced by it.
func startBMC(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: bmc FILE [lies|stays-off|locked]")
	}
	bmc, password, err := bmcOf(ts.MkAbs(args[0]), append(args, "")[1])
	ts.Check(err)
	ts.Defer(bmc.Stop)
	ts.Setenv("BMC_PASSWORD", password)
}

func bmcOf(file, kind string) (bmc *redfishsim.BMC, password string, err error) {
	password = "secret"
	config := redfishsim.Config{Username: "fencer", Password: password, Power: redfishsim.NewSwitch(true)}
	switch kind {
	case "lies":
		config.Mode.Lie = true
	case "stays-off":
		config.Power = switchOnly{redfishsim.NewSwitch(true)}
	case "locked":
		password = "wrong"
	}
	if bmc, err = redfishsim.Start(config); err != nil {
		return nil, "", err
	}
	text := fmt.Sprintf(`[cluster]
name = "web"
key_file = "/etc/hamgr/cluster.key"

[[node]]
name = "gamma"
addresses = ["10.0.0.13"]
fencing = [["gamma-bmc"]]

[[node]]
name = "delta"
addresses = ["10.0.0.14"]
role = "witness"

[[fence_device]]
name = "gamma-bmc"
agent = "redfish"
address = %q
username = "fencer"
password_env = "BMC_PASSWORD"
pin_sha256 = %q
timeout = "2s"
`, bmc.URL(), bmc.CertPin())
	return bmc, password, os.WriteFile(file, []byte(text), 0o600)
}
