package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// An operation that takes its time is answered by a stream of JSON lines: events as they
// happen, then one line that is the result or the error. While nothing happens an empty
// line object goes out every alive, so that each side notices when the other is gone;
// a stream that is silent for longer than silence has lost its far end.
const (
	alive   = 2 * time.Second
	silence = 5 * alive
	maxLine = 256 << 10
	backlog = 256 // events waiting for a slow reader; more are dropped, the end never is
)

// fenceLine is one line. Exactly one field is set, or none.
type fenceLine struct {
	Event  *FenceEvent  `json:"event,omitempty"`
	Result *FenceResult `json:"result,omitempty"`
	Error  *Error       `json:"error,omitempty"`
}

// streamFence runs an operation and writes its stream. An error before the first line is
// returned, and becomes an ordinary answer.
func streamFence(ctx context.Context, w http.ResponseWriter, fence func(context.Context, func(FenceEvent)) (FenceResult, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan FenceEvent, backlog)
	end := make(chan fenceLine, 1)
	go func() {
		result, err := fence(ctx, func(e FenceEvent) {
			select {
			case events <- e:
			default:
			}
		})
		if err != nil {
			end <- fenceLine{Error: wireError(err)}
			return
		}
		result.Schema = Schema
		end <- fenceLine{Result: &result}
	}()

	lines := lineWriter{w: w, control: http.NewResponseController(w)}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		var failed error
		select {
		case e := <-events:
			failed = lines.write(fenceLine{Event: &e})
		case <-tick.C:
			failed = lines.write(fenceLine{})
		case last := <-end:
			for len(events) > 0 {
				e := <-events
				lines.write(fenceLine{Event: &e})
			}
			if last.Error != nil && !lines.started {
				return last.Error
			}
			lines.write(last)
			return nil
		}
		if failed != nil { // nobody reads any more
			cancel()
			<-end
			return nil
		}
	}
}

type lineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	started bool
}

func (l *lineWriter) write(line fenceLine) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	if !l.started {
		l.started = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	l.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := l.w.Write(append(data, '\n')); err != nil {
		return err
	}
	return l.control.Flush()
}

// readFence reads a stream to its end. heard is called for each line. An error that is no
// *Error means that the stream broke before its end.
func readFence(r io.Reader, heard func(), observe func(FenceEvent)) (FenceResult, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		heard()
		var line fenceLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return FenceResult{}, fmt.Errorf("read the stream: %w", err)
		}
		switch {
		case line.Error != nil:
			return FenceResult{}, line.Error
		case line.Result != nil:
			return *line.Result, nil
		case line.Event != nil:
			observe(*line.Event)
		}
	}
	if err := lines.Err(); err != nil {
		return FenceResult{}, fmt.Errorf("read the stream: %w", err)
	}
	return FenceResult{}, fmt.Errorf("read the stream: %w", io.ErrUnexpectedEOF)
}
