package node

import (
	"context"
	"errors"

	"github.com/hamgr/hamgr/cluster/api"
)

// FenceTest has every node that may have to use a fence device read it.
func (b backend) FenceTest(ctx context.Context, node string) (api.FenceTest, error) {
	return api.FenceTest{}, errors.ErrUnsupported
}

// FenceHistory gives the operations that are remembered.
func (b backend) FenceHistory(ctx context.Context, node string) (api.FenceHistory, error) {
	return api.FenceHistory{}, errors.ErrUnsupported
}

// SetNode has the coordinator commit what a node may be used for.
func (b backend) SetNode(ctx context.Context, req api.NodeRequest) (api.NodeResult, error) {
	return api.NodeResult{}, errors.ErrUnsupported
}
