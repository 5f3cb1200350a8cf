package api

import "fmt"

// NodeRequest asks for a node to be put on standby, or back into service.
type NodeRequest struct {
	Node    string `json:"node"`
	Standby bool   `json:"standby"`
	By      string `json:"by,omitempty"`
}

// NodeResult tells that a NodeRequest is committed.
type NodeResult struct {
	Schema  int    `json:"schema"`
	Node    string `json:"node"`
	Standby bool   `json:"standby"`
	// Changed is false where it was so already.
	Changed bool `json:"changed"`
	// Holds are the groups that the node still holds; those of a node on standby are being moved away.
	Holds []string `json:"holds"`
}

// Validate reports what is wrong with a request in itself, as ErrInvalid.
func (r NodeRequest) Validate() error {
	switch {
	case r.Node == "" || len(r.Node) > maxName:
		return fmt.Errorf("%w: a node name of 1 to %d bytes is needed", ErrInvalid, maxName)
	case len(r.By) > maxName:
		return fmt.Errorf("%w: the operator's name is longer than %d bytes", ErrInvalid, maxName)
	}
	return nil
}
