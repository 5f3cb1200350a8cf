package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	pathStatus      = "/v1/status"
	pathFenceStatus = "/v1/fence-status"
	pathFence       = "/v1/fence"
	pathFenceTest   = "/v1/fence-test"
	pathHistory     = "/v1/fence-history"
	pathChange      = "/v1/change"

	pathApply         = "/v1/apply"
	pathConfiguration = "/v1/configuration"
	pathForce         = "/v1/quorum-force"
	pathKeys          = "/v1/keys"
	pathReloadKeys    = "/v1/keys-reload"
	pathCall          = "/node/v1/" // and the verb
)

// Bounds of one request. MaxCall holds for the body of a call between nodes and for its
// answer.
const (
	maxRequest = 64 << 10
	MaxCall    = 4 << 20

	longestRead  = 30 * time.Second
	longestProbe = 2 * time.Minute  // every plug of a node, each with its device's own deadline
	longestTest  = 15 * time.Minute // the same of every node, by every other one
	longestFence = time.Hour        // a device that is being repaired; the asker decides
	longestCall  = time.Hour        // a shot by another node
)

// Operator is the face that the unix socket serves.
func Operator(b Backend) Face {
	routes := slices.Concat(operatorRoutes(b), configurationRoutes(b), quorumRoutes(b), keyRoutes(b))
	slices.SortFunc(routes, func(x, y route) int { return strings.Compare(x.path, y.path) })
	return Face{routes}
}

func operatorRoutes(b Backend) []route {
	return []route{
		{"POST", pathChange, maxRequest, longestRead, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			req, err := readRequest[ChangeRequest](r)
			if err != nil {
				return err
			}
			result, err := b.Change(ctx, req)
			if err != nil {
				return err
			}
			result.Schema = Schema
			return writeJSON(w, result)
		}},
		{"POST", pathFence, maxRequest, longestFence, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			req, err := readRequest[FenceRequest](r)
			if err != nil {
				return err
			}
			return streamFence(ctx, w, func(ctx context.Context, observe func(FenceEvent)) (FenceResult, error) {
				return b.Fence(ctx, req, observe)
			})
		}},
		{"GET", pathHistory, 0, longestRead, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			history, err := b.FenceHistory(ctx, r.URL.Query().Get("node"))
			if err != nil {
				return err
			}
			history.Schema = Schema
			return writeJSON(w, history)
		}},
		{"GET", pathFenceStatus, 0, longestProbe, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			node := r.URL.Query().Get("node")
			if node == "" {
				return fmt.Errorf("%w: which node?", ErrInvalid)
			}
			status, err := b.FenceStatus(ctx, node)
			if err != nil {
				return err
			}
			status.Schema = Schema
			return writeJSON(w, status)
		}},
		{"GET", pathFenceTest, 0, longestTest, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			test, err := b.FenceTest(ctx, r.URL.Query().Get("node"))
			if err != nil {
				return err
			}
			test.Schema = Schema
			return writeJSON(w, test)
		}},
		{"GET", pathStatus, 0, longestRead, func(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
			status, err := b.Status(ctx)
			if err != nil {
				return err
			}
			status.Schema = Schema
			return writeJSON(w, status)
		}},
	}
}

// Nodes is the face that link's API listener serves.
func Nodes(b NodeBackend) Face {
	return Face{[]route{
		{"POST", pathCall + "{verb}", MaxCall, longestCall, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			peer, err := peerOf(ctx)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return fmt.Errorf("read the call of %s: %w", peer, err)
			}
			answer, err := b.Call(ctx, peer, r.PathValue("verb"), body)
			if err != nil {
				return err
			}
			if len(answer) > MaxCall {
				return fmt.Errorf("%w: an answer of %d bytes is over the limit of %d", ErrInternal, len(answer), MaxCall)
			}
			return writeBody(w, http.StatusOK, "application/octet-stream", answer)
		}},
		{"POST", pathFence, maxRequest, longestFence, func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
			peer, err := peerOf(ctx)
			if err != nil {
				return err
			}
			req, err := readRequest[FenceRequest](r)
			if err != nil {
				return err
			}
			return streamFence(ctx, w, func(ctx context.Context, observe func(FenceEvent)) (FenceResult, error) {
				return b.FenceForwarded(ctx, peer, req, observe)
			})
		}},
	}}
}

// readRequest reads the body of an operator's request, and says what is wrong with it.
func readRequest[R interface{ Validate() error }](r *http.Request) (R, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return *new(R), fmt.Errorf("read the request: %w", err)
	}
	return decodeRequest[R](body)
}

func decodeRequest[R interface{ Validate() error }](body []byte) (R, error) {
	var req R
	if err := decodeStrict(body, &req); err != nil {
		return *new(R), err
	}
	return req, req.Validate()
}
