package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// rehearsal is what `hamgr fence rehearse --json` prints. Times are milliseconds.
type rehearsal struct {
	Schema int              `json:"schema"`
	Node   string           `json:"node"`
	OK     bool             `json:"ok"`
	Levels []rehearsedLevel `json:"levels"`
}

// rehearsedLevel is what became of one level: its power was cut and proven off, and the node came back.
type rehearsedLevel struct {
	Level       int               `json:"level"`
	OK          bool              `json:"ok"`
	Op          uint64            `json:"op,omitempty"`
	Proof       string            `json:"proof,omitempty"`
	TookMS      int64             `json:"took_ms"`
	BackAfterMS int64             `json:"back_after_ms,omitempty"` // from the order, like took_ms
	Error       string            `json:"error,omitempty"`
	Devices     []rehearsedDevice `json:"devices"`
}

type rehearsedDevice struct {
	Device string `json:"device"`
	Plug   string `json:"plug,omitempty"`
	// Proven: it was told off, and then read off.
	Proven bool   `json:"proven"`
	State  string `json:"state"`
	OffMS  int64  `json:"off_ms"`
	Error  string `json:"error,omitempty"`
}

func (c *cli) fenceRehearseCommand() *cobra.Command {
	var (
		yes     bool
		only    int
		reason  string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rehearse NODE",
		Short: "Prove on an empty node that its fence devices really cut its power",
		Long: `Prove on an empty node that its fence devices really cut its power: for each level of its fencing it
is really switched off, read back, switched on again, and waited for. The node must be on standby and hold
no group (hamgr node standby NODE). When and how fast each device did it is recorded, and shown by hamgr status.`,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			node := args[0]
			if only < 0 || cmd.Flags().Changed("level") && only == 0 {
				return usagef("levels are counted from 1")
			}
			if !yes && !c.interactive {
				return usagef("fence rehearse %s asks before it cuts the power, and there is no terminal to answer: give --yes", node)
			}
			client := c.client()
			defer client.Close()
			status, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			plan, err := mayRehearse(status, node, only)
			if err != nil {
				return err
			}
			if err := c.readable(cmd.Context(), client, plan); err != nil {
				return err
			}
			if !yes {
				if err := c.agree(cmd.Context(), plan.question()); err != nil {
					return err
				}
			}
			r := rehearser{cli: c, client: client, plan: plan, reason: reason, timeout: timeout}
			return r.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.IntVar(&only, "level", 0, "only this level, from 1 (default: all, one after the other)")
	flags.StringVar(&reason, "reason", "rehearsal", "why, for the record")
	flags.DurationVar(&timeout, "timeout", 15*time.Minute, "how long each level may take, until the node is back")
	return cmd
}

// rehearsalPlan is what is to be rehearsed.
type rehearsalPlan struct {
	node    string
	fencing [][]string // all levels of the node
	levels  []int      // to be rehearsed, from 1
}

// mayRehearse refuses early, and in words, what the coordinator would refuse.
func mayRehearse(s api.Status, node string, only int) (rehearsalPlan, error) {
	n, err := nodeOf(s, node)
	if err != nil {
		return rehearsalPlan{}, err
	}
	refuse := func(code api.Code, hint, format string, args ...any) (rehearsalPlan, error) {
		return rehearsalPlan{}, &api.Error{Code: code, Message: "no rehearsal: " + fmt.Sprintf(format, args...), Hint: hint}
	}
	levels := n.Fencing.Levels
	switch held := holds(s, node); {
	case !s.Quorate:
		return refuse(api.ErrNoQuorum, "hamgr status tells what is missing", "there is no quorum")
	case len(levels) == 0:
		return refuse(api.ErrUnsafe, "add one to its fencing in hamgr.toml", "%s has no fence device", node)
	case only > len(levels):
		return refuse(api.ErrInvalid, "", "%s has %s of fencing", node, plural(len(levels), "level"))
	case s.Node == node:
		return refuse(api.ErrUnsafe, "run it on another node", "%s is this host, and this command would go down with it", node)
	case n.Unclean || n.FenceOp != 0:
		return refuse(api.ErrUnsafe, "hamgr status tells more", "%s is being fenced, or has to be", node)
	case n.State != api.NodeAlive:
		return refuse(api.ErrUnsafe, "hamgr status tells more", "%s is %s, and a rehearsal is for a healthy node", node, n.State)
	case !n.Standby:
		return refuse(api.ErrUnsafe, "hamgr node standby "+node, "%s is not on standby", node)
	case len(held) > 0:
		return refuse(api.ErrUnsafe, "wait until hamgr status shows that they moved away", "%s still holds %s", node, strings.Join(held, ", "))
	}
	p := rehearsalPlan{node: node, fencing: levels}
	for i := range levels {
		if only == 0 || only == i+1 {
			p.levels = append(p.levels, i+1)
		}
	}
	return p, nil
}

// readable refuses the rehearsal of a device that no node can use just now: it would show nothing, and leave
// an operation that goes on trying to switch the node on again.
func (c *cli) readable(ctx context.Context, client *api.Client, p rehearsalPlan) error {
	test, err := c.testCluster(ctx, client, p.node)
	if err != nil {
		return err
	}
	var bad []string
	for _, level := range p.levels {
		for _, device := range p.fencing[level-1] {
			if words := hopeless(test, level, device); words != "" {
				bad = append(bad, fmt.Sprintf("level %d, %s: %s", level, device, words))
			}
		}
	}
	if bad == nil {
		return nil
	}
	return &api.Error{
		Code: api.ErrUnsafe, Message: "no rehearsal: " + strings.Join(bad, "; "),
		Hint: fmt.Sprintf("hamgr fence test %s tells when that is mended; --level N rehearses another level alone", p.node),
	}
}

// hopeless is what was found wrong at a plug of the device that no reader found well; nothing if there is none.
func hopeless(t api.FenceTest, level int, device string) string {
	for _, h := range t.Devices {
		well := func(o api.DeviceHealth) bool {
			return o.OK && o.Level == level && o.Device == device && o.Plug == h.Plug
		}
		if h.Level == level && h.Device == device && !slices.ContainsFunc(t.Devices, well) {
			return strings.TrimPrefix(fmt.Sprintf("plug %s: %s", h.Plug, or(h.Error, verdict(h))), "plug : ")
		}
	}
	return ""
}

func (p rehearsalPlan) question() string {
	var ways []string
	for _, level := range p.levels {
		ways = append(ways, fmt.Sprintf("level %d (%s)", level, strings.Join(p.fencing[level-1], "+")))
	}
	return fmt.Sprintf("%s is on standby and holds no group; it will be switched off and on again %s, by %s. Cut its power?",
		p.node, plural(len(ways), "time"), strings.Join(ways, ", then "))
}

func writeRehearsal(w io.Writer, r rehearsal, p rehearsalPlan) {
	t := table{{"LEVEL", "DEVICE", "PLUG", "OFF AFTER", "BACK AFTER", "VERDICT"}}
	for i, level := range p.levels {
		if i >= len(r.Levels) {
			t.row(strconv.Itoa(level), strings.Join(p.fencing[level-1], "+"), "", "", "", "not tried")
			continue
		}
		l, back := r.Levels[i], ""
		if l.BackAfterMS > 0 {
			back = shortMS(l.BackAfterMS)
		}
		if len(l.Devices) == 0 {
			t.row(strconv.Itoa(level), strings.Join(p.fencing[level-1], "+"), "", "", back, or(l.Error, "not known"))
		}
		for _, d := range l.Devices {
			off, verdict := "", "proven"
			if d.Proven {
				off = shortMS(d.OffMS)
			} else {
				verdict = "NOT PROVEN: " + or(d.Error, "reads "+d.State)
			}
			t.row(strconv.Itoa(level), d.Device, d.Plug, off, back, verdict)
		}
	}
	t.write(w, "")
}
