package ipmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
)

const (
	bmcAddress     = 0x20 // IPMI 2.0, 13.8
	consoleAddress = 0x81

	// commandWait is how long the answer to a command that is sent once is waited for. It is
	// short: only the power state tells what came of it.
	commandWait = time.Second
	// mostOpen is how many questions in a row may stay without answer. Their sequence numbers come
	// round after 64, and then an answer to an old one would look like that to the new one.
	mostOpen = 32
	// closeWait is the time for one try to end a session.
	closeWait = 100 * time.Millisecond
)

// session is an established session.
type session struct {
	*wire
	guard    guard
	bmc      uint32 // the BMC's session ID
	sent     uint32 // sequence number of the newest datagram sent
	asked    uint8  // requester's sequence number of the newest question
	open     int    // questions without answer since the last that had one
	wait     time.Duration
	level    types.PrivilegeLevel
	isRaised bool
}

// read asks something that changes nothing, so that it may be asked again while the answer
// fails to come. An answer to any of these tries is an answer: all were asked after read began.
func (s *session) read(ctx context.Context, request types.Request, response types.Response) error {
	err := s.ask(ctx, s.waits(), request, response)
	if errors.Is(err, agents.ErrPrivilege) && !s.isRaised {
		// A new session has the level user (IPMI 2.0, 22.18), with which one may read.
		// Some BMCs want more.
		if raised := s.raise(ctx); raised != nil {
			return raised
		}
		err = s.ask(ctx, s.waits(), request, response)
	}
	return err
}

// once asks for something to be done.
func (s *session) once(ctx context.Context, request types.Request, response types.Response) error {
	return s.ask(ctx, []time.Duration{commandWait}, request, response)
}

func (s *session) ask(ctx context.Context, waits []time.Duration, request types.Request, response types.Response) error {
	if s.open == mostOpen {
		return &silence{}
	}
	s.open++
	s.asked = (s.asked + 1) & types.IPMIRequesterSequenceMax
	q := question{request.Command(), s.asked}
	err := s.exchange(ctx, waits, func() ([]byte, error) {
		return s.datagram(q, request.Pack())
	}, func(datagram []byte) (bool, error) {
		r, err := s.guard.answer(q, datagram)
		if err != nil {
			return false, err
		}
		s.open = 0
		if r.CompletionCode != uint8(types.CodeOK) {
			return true, &completionError{q.command, types.CompletionCode(r.CompletionCode)}
		}
		if err := response.Unpack(r.Data); err != nil {
			return true, fmt.Errorf("%w: to %s: %w", agents.ErrProtocol, q.command.Name, err)
		}
		return true, nil
	})
	var refused *completionError
	if err == nil || errors.As(err, &refused) { // which names the command itself
		return err
	}
	return fmt.Errorf("%s: %w", q.command.Name, err)
}

// datagram carries a question. Each has a sequence number of its own, also if it asks the
// same again (IPMI 2.0, 6.12.13).
func (s *session) datagram(q question, data []byte) ([]byte, error) {
	message := types.IPMIRequest{
		ResponderAddr: bmcAddress, RequesterAddr: consoleAddress,
		NetFn: q.command.NetFn, Command: q.command.ID, RequesterSequence: q.sequence, CommandData: data,
	}
	message.ComputeChecksum()
	s.sent++
	return s.guard.keys.seal(s.bmc, s.sent, message.Pack())
}

// raise lifts the session to the privilege level that switching needs.
func (s *session) raise(ctx context.Context) error {
	if s.isRaised {
		return nil
	}
	var response app.SetSessionPrivilegeLevelResponse
	err := s.ask(ctx, s.waits(), &app.SetSessionPrivilegeLevelRequest{PrivilegeLevel: s.level}, &response)
	if err == nil && types.PrivilegeLevel(response.PrivilegeLevel&0x0f) < s.level {
		err = errLevel
	}
	s.isRaised = err == nil
	return err
}

// end closes the session at the BMC, and the socket whatever comes of that.
func (s *session) end(ctx context.Context) error {
	if ctx.Err() != nil {
		s.abandon()
		return fmt.Errorf("whether the BMC ended the session is not known: %w", ctx.Err())
	}
	defer s.close()
	request := &app.CloseSessionRequest{SessionID: s.bmc}
	err := s.ask(ctx, []time.Duration{closeWait, closeWait, closeWait}, request, &app.CloseSessionResponse{})
	if errors.As(err, new(*silence)) {
		return fmt.Errorf("the session may stay at the BMC until it times out: %w", err)
	}
	return nil // whatever it answers, it is gone
}

// abandon closes the socket without waiting for the BMC.
func (s *session) abandon() {
	s.farewell()
	s.close()
}

// farewell tells the BMC to close the session, once.
func (s *session) farewell() {
	request := &app.CloseSessionRequest{SessionID: s.bmc}
	if b, err := s.datagram(question{request.Command(), 0}, request.Pack()); err == nil {
		s.conn.Write(b)
	}
}

// waits are those for a question that may be repeated.
func (s *session) waits() []time.Duration { return []time.Duration{s.wait, 2 * s.wait, 4 * s.wait} }
