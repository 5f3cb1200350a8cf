package api

import (
	"context"
	"fmt"
	"net/http"
)

// ForceRequest asks a node to go on with its own log although the majority is gone for good.
type ForceRequest struct {
	// Node is the answering node's name: the operator means this one.
	Node string `json:"node"`
	// Down are the voters of which the operator knows that they are down, and stay down until they return as
	// newcomers: all that do not answer.
	Down   []string `json:"down"`
	By     string   `json:"by,omitempty"`
	Reason string   `json:"reason,omitempty"`
	DryRun bool     `json:"dry_run,omitempty"`
}

// Validate reports what is wrong with a request in itself, as ErrInvalid.
func (r ForceRequest) Validate() error {
	switch {
	case r.Node == "" || len(r.Node) > maxName:
		return fmt.Errorf("%w: which node is to go on?", ErrInvalid)
	case len(r.By) > maxName || len(r.Reason) > maxText:
		return fmt.Errorf("%w: the operator's name or reason is too long", ErrInvalid)
	}
	return nil
}

// ForceResult is what was made of it.
type ForceResult struct {
	Schema int     `json:"schema"`
	Forced bool    `json:"forced"`
	Voters []Voice `json:"voters"` // what the others said when they were asked
	Token  uint64  `json:"token"`  // the last one from now on
}

// Voice is what a voter answers when it is asked directly.
type Voice struct {
	Node        string `json:"node"`
	Answers     bool   `json:"answers"`
	Coordinator string `json:"coordinator,omitempty"` // that it knows of
	Formed      bool   `json:"formed"`                // it has a log
	Note        string `json:"note,omitempty"`
}

func quorumRoutes(b Backend) []route {
	return []route{
		{"POST", pathForce, maxRequest, longestRead, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			req, err := readRequest[ForceRequest](r)
			if err != nil {
				return err
			}
			result, err := b.ForceQuorum(ctx, req)
			if err != nil {
				return err
			}
			result.Schema = Schema
			return writeJSON(w, result)
		}},
	}
}

// ForceQuorum asks for Backend.ForceQuorum.
func (c *Client) ForceQuorum(ctx context.Context, req ForceRequest) (ForceResult, error) {
	var result ForceResult
	if err := req.Validate(); err != nil {
		return result, err
	}
	return result, c.post(ctx, pathForce, req, &result)
}
