package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Configuration is what the cluster goes by.
type Configuration struct {
	Schema  int    `json:"schema"`
	Cluster string `json:"cluster"`
	// Index is the log entry that holds it; 0 where the cluster keeps no text yet, and Note says why.
	Index uint64    `json:"index"`
	Text  string    `json:"text"` // the file itself
	By    string    `json:"by,omitempty"`
	At    time.Time `json:"at,omitzero"`
	Note  string    `json:"note,omitempty"`
	// Nodes tells of each how far it is with it.
	Nodes []ConfiguredNode `json:"nodes"`
}

// ConfiguredNode is how far a node is with the configuration of the cluster.
type ConfiguredNode struct {
	Name string `json:"name"`
	// Current says that it runs with the cluster's configuration.
	Current bool   `json:"current"`
	Reason  string `json:"reason,omitempty"` // why it does not
}

// ApplyRequest asks for another configuration for the whole cluster.
type ApplyRequest struct {
	Text string `json:"text"`
	// From is Configuration.Index of what it was made from; where the cluster moved on meanwhile it is refused.
	From uint64 `json:"from"`
	By   string `json:"by,omitempty"`
	// DryRun has it judged, and nothing changed.
	DryRun bool `json:"dry_run,omitempty"`
}

// Bounds of a configuration's text on its way, and of what is said of it.
const (
	maxConfiguration = 256 << 10
	maxApply         = 2 * maxConfiguration // as JSON
)

// Validate reports what is wrong with a request in itself, as ErrInvalid.
func (r ApplyRequest) Validate() error {
	switch {
	case r.Text == "":
		return fmt.Errorf("%w: there is no text", ErrInvalid)
	case len(r.Text) > maxConfiguration:
		return fmt.Errorf("%w: the configuration is longer than %d bytes", ErrInvalid, maxConfiguration)
	case len(r.By) > maxName:
		return fmt.Errorf("%w: the operator's name is longer than %d bytes", ErrInvalid, maxName)
	}
	return nil
}

// ApplyResult is what was made of it.
type ApplyResult struct {
	Schema int `json:"schema"`
	// Index is the log entry that holds the configuration; that of the one before if it was not committed.
	Index    uint64         `json:"index"`
	Applied  bool           `json:"applied"` // it is committed
	Changes  []ConfigChange `json:"changes"`
	Refused  []Objection    `json:"refused"`
	Warnings []Objection    `json:"warnings"`
}

// ConfigChange is one difference between two configurations.
type ConfigChange struct {
	What   string `json:"what"` // the table: cluster, node, fence_device, group or resource
	Group  string `json:"group,omitempty"`
	Name   string `json:"name,omitempty"`
	Kind   string `json:"kind"` // added, removed or changed
	Key    string `json:"key,omitempty"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`
	Effect string `json:"effect"`
}

// Objection is one thing that speaks against a change.
type Objection struct {
	Key     string `json:"key"`
	Message string `json:"message"`
	Cure    string `json:"cure"`
}

// configurationRoutes are those of the operator's face.
func configurationRoutes(b Backend) []route {
	return []route{
		{"GET", pathConfiguration, 0, longestRead, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			c, err := b.Configuration(ctx)
			if err != nil {
				return err
			}
			c.Schema = Schema
			return writeJSON(w, c)
		}},
		{"POST", pathApply, maxApply, longestRead, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			req, err := readRequest[ApplyRequest](r)
			if err != nil {
				return err
			}
			result, err := b.Apply(ctx, req)
			if err != nil {
				return err
			}
			result.Schema = Schema
			return writeJSON(w, result)
		}},
	}
}

// Configuration asks for Backend.Configuration.
func (c *Client) Configuration(ctx context.Context) (Configuration, error) {
	var conf Configuration
	return conf, c.get(ctx, pathConfiguration, &conf)
}

// Apply asks for Backend.Apply. Once the request is on its way, a broken connection is ErrUnknownOutcome; a dry run
// changes nothing whatever becomes of it.
func (c *Client) Apply(ctx context.Context, req ApplyRequest) (ApplyResult, error) {
	var result ApplyResult
	if err := req.Validate(); err != nil {
		return result, err
	}
	err := c.post(ctx, pathApply, req, &result)
	if e := (*Error)(nil); req.DryRun && errors.As(err, &e) && e.Code == ErrUnknownOutcome {
		e.Code, e.Message, e.Hint = ErrTimeout, "the daemon did not answer: "+e.Message, ""
	}
	return result, err
}

// post sends a request that changes something, and reads its answer.
func (c *Client) post(ctx context.Context, path string, req, result any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := readLimited(resp.Body, maxStatus)
	if err != nil {
		return unknownOutcome(ctx, err)
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return &Error{Code: ErrUnknownOutcome, Message: "the daemon's answer is not understood: " + err.Error(), cause: err}
	}
	return nil
}
