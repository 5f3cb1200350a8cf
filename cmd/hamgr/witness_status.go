package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/node"
)

// witnessOutput is what `hamgr witness status --json` prints.
type witnessOutput struct {
	Schema   int               `json:"schema"`
	Clusters []witnessedStatus `json:"clusters"`
}

// witnessedStatus is one cluster, as the witness of this host sees it.
type witnessedStatus struct {
	Name    string    `json:"name"` // of its file, without .toml
	File    string    `json:"file"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"` // that this host is in it
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Error   string    `json:"error,omitempty"`
	Socket  string    `json:"socket,omitempty"`

	Quorate     bool   `json:"quorate"`
	Coordinator string `json:"coordinator,omitempty"`
	Voters      int    `json:"voters,omitempty"`
	// Present are the voters that answer now, this one among them.
	Present int `json:"present,omitempty"`
	// ContactAgeMS is how long ago any other node was heard.
	ContactAgeMS *int64 `json:"contact_age_ms,omitempty"`
}

func (c *cli) witnessStatusCommand(runDir *string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all clusters that the witness of this host serves in one screen",
		Long: `Show all clusters that the witness of this host serves in one screen. Ends with 1 if one of them is not served, or
without a quorum. For all that is known of one: hamgr status --socket PATH.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.witnessStatus(ctx, *runDir)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the witness")
	return cmd
}

func (c *cli) witnessStatus(ctx context.Context, runDir string) error {
	served, err := readWitness(runDir)
	if errors.Is(err, node.ErrNoWitness) {
		return &api.Error{Code: api.ErrUnreachable, Message: err.Error(), Hint: "start it with `systemctl start hamgr-witness`; if it runs elsewhere, name its --run-dir"}
	}
	if err != nil {
		return err
	}
	out := witnessOutput{Schema: api.Schema, Clusters: make([]witnessedStatus, len(served))}
	var asking sync.WaitGroup
	for i, s := range served {
		asking.Go(func() { out.Clusters[i] = witnessed(ctx, s) })
	}
	asking.Wait()
	if c.json {
		err = c.printJSON(out)
	} else {
		writeWitness(c.out, out)
	}
	if err != nil {
		return err
	}
	return out.outcome()
}

// witnessed asks the node of one cluster.
func witnessed(ctx context.Context, s node.WitnessCluster) witnessedStatus {
	w := witnessedStatus{Name: s.Name, File: s.File, Cluster: s.Cluster, Node: s.Node, State: s.State, Since: s.Since, Error: s.Error, Socket: s.Socket}
	if s.State != node.WitnessServing {
		return w
	}
	client := api.NewClient(api.DialUnix(s.Socket))
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		w.Error = or(w.Error, err.Error())
		return w
	}
	w.Quorate, w.Coordinator, w.Voters = status.Quorate, status.Coordinator, len(status.Nodes)
	for _, n := range status.Nodes {
		if n.State == api.NodeAlive || n.State == api.NodeSuspect {
			w.Present++
		}
		if age := n.ContactAgeMS; n.Name != status.Node && age != nil && (w.ContactAgeMS == nil || *age < *w.ContactAgeMS) {
			w.ContactAgeMS = age
		}
	}
	if !w.Quorate {
		w.Error = or(w.Error, or(status.Waiting, status.Note))
	}
	return w
}

func (o witnessOutput) outcome() error {
	well := 0
	for _, c := range o.Clusters {
		if c.Quorate && c.Error == "" {
			well++
		}
	}
	if ill := len(o.Clusters) - well; ill > 0 {
		return &outcome{status: exitFailed, text: fmt.Sprintf("%d of %s not well", ill, plural(len(o.Clusters), "cluster"))}
	}
	return nil
}

func writeWitness(w io.Writer, o witnessOutput) {
	if len(o.Clusters) == 0 {
		fmt.Fprintln(w, "no clusters: no NAME.toml lies in the folder of the witness")
		return
	}
	t := table{{"FILE", "CLUSTER", "AS", "STATE", "QUORUM", "COORDINATOR", "VOTERS", "CONTACT", "NOTE"}}
	for _, c := range o.Clusters {
		quorum, voters, contact := "", "", ""
		if c.Voters > 0 {
			voters = fmt.Sprintf("%d/%d", c.Present, c.Voters)
			quorum, contact = "NO", "never"
		}
		if c.Quorate {
			quorum = "yes"
		}
		if c.ContactAgeMS != nil {
			contact = shortMS(*c.ContactAgeMS) + " ago"
		}
		t.row(c.Name, c.Cluster, c.Node, c.State, quorum, c.Coordinator, voters, contact, c.Error)
	}
	t.write(w, "")
}
