package stonith

import (
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// proofs gives the evidence of each plug of a device that succeeded.
func (d *drive) proofs() []PlugProof {
	proofs := make([]PlugProof, len(d.plugs))
	for i, p := range d.plugs {
		proofs[i] = PlugProof{Device: d.device.Name, Plug: p.name, Detail: p.last.Detail, WasOff: p.commands == 0, OffSince: p.since}
	}
	return proofs
}

// failure tells where each plug was left.
func (d *drive) failure(err error) *DeviceFailure {
	if err == errOutOfTime {
		err = fmt.Errorf("not read back %s within %v", d.op.goal.verb, max(d.took.Round(time.Millisecond), d.device.Timeout))
	}
	f := &DeviceFailure{Device: d.device.Name, Commanded: d.commanded, Err: err}
	for _, p := range d.plugs {
		if d.amiss(p) {
			f.Plugs = append(f.Plugs, PlugFailure{
				Plug: p.name, State: p.last.State, Detail: p.last.Detail,
				ReadErr: p.err, CommandErr: p.commandErr,
			})
		}
	}
	return f
}

// amiss reports whether a failed device's plug has its part in the failure: it is not where
// it should be, or all are, but not for the settle time.
func (d *drive) amiss(p *plug) bool {
	_, all := d.reached()
	return d.asked && (all || p.since.IsZero())
}

// results gives a line for each plug. What contradicted the device is told too.
func (d *drive) results(against string) []DeviceResult {
	plugs := d.plugs
	if len(plugs) == 0 {
		plugs = []*plug{{}}
	}
	var results []DeviceResult
	for _, p := range plugs {
		r := DeviceResult{
			Level: d.level, Device: d.device.Name, Plug: p.name, State: p.last.State, Detail: p.last.Detail,
			WasOff:   d.op.goal.want == agents.Off && !p.since.IsZero() && p.commands == 0,
			Commands: p.commands, TookMS: d.took.Milliseconds(),
		}
		switch {
		case against != "":
			r.Trouble, r.Error = agents.Other, "contradicted by "+against
		case d.failed != nil && d.amiss(p):
			r.Trouble, r.Error = agents.TroubleOf(errors.Join(p.err, d.failed.Err)), p.trouble()+d.failed.Err.Error()
		case d.failed != nil && p.since.IsZero():
			r.Trouble, r.Error = agents.TroubleOf(d.failed.Err), d.failed.Err.Error()
		}
		results = append(results, r)
	}
	return results
}

// trouble is what the device last answered to a read and to a command, as far as those were errors.
func (p *plug) trouble() string {
	var text string
	if p.err != nil {
		text = "power status: " + p.err.Error() + ": "
	}
	if p.commandErr != nil {
		text += "command: " + p.commandErr.Error() + ": "
	}
	return text
}
