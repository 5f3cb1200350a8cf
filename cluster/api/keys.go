package api

import (
	"context"
	"net/http"
)

// Keys tells with which cluster keys the nodes work. A key is named by its fingerprint; the keys themselves
// never leave their files.
type Keys struct {
	Schema int    `json:"schema"`
	Node   string `json:"node"` // that answers
	File   string `json:"file"` // from which its daemon has its keys
	// Nodes are all nodes of the cluster, the answering one too.
	Nodes []NodeKeys `json:"nodes"`
}

// NodeKeys is what one node says of itself.
type NodeKeys struct {
	Name string `json:"name"`
	// Accepts are the keys that its daemon goes by, in the order of its file; it dials and seals with the first.
	Accepts []string `json:"accepts"`
	// HeardWith is the key by which the answering node heard it last.
	HeardWith string `json:"heard_with,omitempty"`
	// Trouble is why its file cannot be used now; it goes by what it had before.
	Trouble string `json:"trouble,omitempty"`
	// Silent is why it told nothing.
	Silent string `json:"silent,omitempty"`
}

// Uses is the key that a node dials and seals with; empty if that is not known.
func (n NodeKeys) Uses() string {
	if len(n.Accepts) == 0 {
		return ""
	}
	return n.Accepts[0]
}

func keyRoutes(b Backend) []route {
	tell := func(ask func(context.Context) (Keys, error)) func(context.Context, http.ResponseWriter, *http.Request) error {
		return func(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
			keys, err := ask(ctx)
			if err != nil {
				return err
			}
			keys.Schema = Schema
			return writeJSON(w, keys)
		}
	}
	return []route{
		{"GET", pathKeys, 0, longestRead, tell(b.Keys)},
		{"POST", pathReloadKeys, maxRequest, longestRead, tell(b.ReloadKeys)},
	}
}

// Keys asks for Backend.Keys.
func (c *Client) Keys(ctx context.Context) (Keys, error) {
	var keys Keys
	return keys, c.get(ctx, pathKeys, &keys)
}

// ReloadKeys asks for Backend.ReloadKeys.
func (c *Client) ReloadKeys(ctx context.Context) (Keys, error) {
	var keys Keys
	return keys, c.post(ctx, pathReloadKeys, struct{}{}, &keys)
}
