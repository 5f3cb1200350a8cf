package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// choice is which ResetType values serve a command, best first.
type choice struct {
	values []string
	none   error
}

// ForceOff alone is an off. PowerCycle and ForceRestart bring the host back,
// PushPowerButton is a toggle that starts a host which is off, and GracefulShutdown asks
// the very kernel that does not answer any more.
var (
	pickOff = choice{values: []string{"ForceOff"}, none: ErrNoForceOff}
	pickOn  = choice{values: []string{"On", "ForceOn"}, none: ErrNoOn}
)

// actionInfoPatience is what the ActionInfo document may cost; a shot does not fail for want of it.
const actionInfoPatience = time.Second

// reset sends the command to the target that the system's document names.
func (a *agent) reset(ctx context.Context, plug string, c choice) error {
	s, err := a.system(ctx, plug)
	if err != nil {
		return err
	}
	value, err := a.pick(ctx, s, c)
	if err != nil {
		return err
	}
	err = a.send(ctx, s, value, nil)
	var status *statusError
	if !errors.As(err, &status) || (status.status != http.StatusPreconditionFailed && status.status != http.StatusPreconditionRequired) {
		return err
	}
	// The BMC wants an If-Match (DSP0266, "Query support and ETags"); a fresh tag, once.
	if s, err = a.host(ctx, s.uri); err != nil {
		return err
	}
	if s.etag == "" {
		s.etag = "*"
	}
	return a.send(ctx, s, value, map[string]string{"If-Match": s.etag})
}

func (a *agent) send(ctx context.Context, s *computerSystem, value string, headers map[string]string) error {
	target, err := a.base.reference(s.target)
	if err != nil {
		return fmt.Errorf("the target of the reset: %w", err)
	}
	return a.post(ctx, target, map[string]string{"ResetType": value}, headers)
}

// pick chooses a value that the BMC offers in its ActionInfo, or else in the list of the document
// itself. Where it offers nothing at all (both are optional) the best value is tried.
func (a *agent) pick(ctx context.Context, s *computerSystem, c choice) (string, error) {
	offered := s.allowed
	if v, ok := c.best(offered); ok && len(c.values) == 1 {
		return v, nil // the ActionInfo could name no other; a shot does not wait for it
	}
	if s.actionInfo != "" {
		info, err := a.readActionInfo(ctx, s.actionInfo)
		switch {
		case ctx.Err() != nil:
			return "", err
		case err != nil:
			a.log.WarnContext(ctx, "action info not readable", "uri", s.actionInfo, "err", err)
		}
		if v, ok := c.best(info); ok {
			return v, nil
		}
		offered = append(slices.Clone(offered), info...)
	}
	if v, ok := c.best(offered); ok {
		return v, nil
	}
	if len(offered) == 0 {
		return c.values[0], nil
	}
	for i := range offered {
		offered[i] = word(offered[i])
	}
	return "", fmt.Errorf("%w, only %s", c.none, strings.Join(offered[:min(len(offered), 16)], ", "))
}

func (c choice) best(offered []string) (string, bool) {
	for _, v := range c.values {
		if slices.Contains(offered, v) {
			return v, true
		}
	}
	return "", false
}

func (a *agent) readActionInfo(ctx context.Context, ref string) ([]string, error) {
	uri, err := a.base.reference(ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, actionInfoPatience)
	defer cancel()
	doc, _, err := a.get(ctx, uri)
	if err != nil {
		return nil, err
	}
	return parseActionInfo(doc)
}
