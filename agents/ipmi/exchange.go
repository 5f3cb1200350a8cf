package ipmi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// wire is the socket to one BMC. A new one is made for each session, so that nothing that was
// meant for an earlier one arrives.
type wire struct {
	conn    net.Conn
	log     *slog.Logger
	heard   *atomic.Bool  // set when the first valid datagram came
	foreign int           // datagrams that the BMC itself does not send
	took    time.Duration // of the newest exchange that was answered, all its tries together
	buffer  [largestDatagram]byte
}

const (
	// mostICMP bounds how many errors of the socket one try puts up with.
	mostICMP = 8
	// refusedWait is how long a try goes on when nothing listens at the port.
	refusedWait = 100 * time.Millisecond
)

// exchange asks, again after each wait, until take is content or fails. What take does not
// want (done false) is dropped, with its reason. It returns within moments of the end of ctx.
func (w *wire) exchange(ctx context.Context, waits []time.Duration, ask func() ([]byte, error), take func([]byte) (done bool, err error)) error {
	defer w.interruptedBy(ctx)()
	lost, start := &silence{}, time.Now()
	for _, wait := range waits {
		if ctx.Err() != nil {
			break
		}
		datagram, err := ask()
		if err != nil {
			return err
		}
		if _, err := w.conn.Write(datagram); err != nil {
			// An earlier datagram's ICMP is told here, and this datagram was not sent.
			_, lost.unsent = w.conn.Write(datagram)
		}
		done, err := w.listen(ctx, time.Now().Add(wait), lost, take)
		if done || err != nil {
			w.took = time.Since(start)
			return err
		}
	}
	lost.ended = ctx.Err()
	return lost
}

// listen reads until take is content, or until then.
func (w *wire) listen(ctx context.Context, until time.Time, lost *silence, take func([]byte) (bool, error)) (bool, error) {
	w.conn.SetReadDeadline(until)
	for errs := 0; ctx.Err() == nil; { // looked at after the deadline was set, see interruptedBy
		n, err := w.conn.Read(w.buffer[:])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case errors.Is(err, net.ErrClosed):
			return false, err
		case err != nil:
			lost.refused = true
			if errs++; errs == mostICMP {
				return false, lost
			}
			// A BMC that restarts, or a wrong address: no answer is on its way.
			if soon := time.Now().Add(refusedWait); soon.Before(until) {
				until = soon
				w.conn.SetReadDeadline(until)
			}
			continue
		}
		done, err := take(w.buffer[:n])
		if done {
			w.heard.Store(true)
			return true, err
		}
		if !slices.Contains(echoes, err) {
			w.foreign++
		}
		lost.dropped, lost.last = lost.dropped+1, err
		w.log.Debug("ipmi: datagram dropped", "err", err)
	}
	return false, nil
}

// echoes are why datagrams of the BMC itself are dropped: they came twice, or late.
var echoes = []error{errOld, errQuestion, errKind}

// close closes the socket, and tells if somebody else was heard.
func (w *wire) close() {
	w.conn.Close()
	if w.foreign > 0 {
		w.log.Warn("ipmi: datagrams dropped that were forged or damaged", "dropped", w.foreign)
	}
}

// interruptedBy breaks reads off when ctx ends. The function that it gives undoes that.
func (w *wire) interruptedBy(ctx context.Context) func() {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.conn.SetReadDeadline(time.Unix(1, 0))
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}
