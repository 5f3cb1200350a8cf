package consensus

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// newLogger takes raft's messages into slog: its errors as warnings, all else at debug.
// What matters to an operator is logged by this package in its own words.
func newLogger(log *slog.Logger) hclog.Logger {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: io.Discard})
	logger.RegisterSink(sink{log})
	return logger
}

// everyday are raft's errors that only say that another node does not answer.
var everyday = []string{
	"failed to heartbeat to", "failed to appendEntries to", "failed to make request",
	"failed to decode incoming command", "failed to flush response", "failed to accept connection",
	"failed to install snapshot", "failed to send snapshot", "failed to contact",
}

type sink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level >= hclog.Error && !isEveryday(msg) {
		to = slog.LevelWarn
	}
	if s.log.Enabled(context.Background(), to) {
		s.log.Log(context.Background(), to, "raft protocol", append([]any{"text", msg}, args...)...)
	}
}

func isEveryday(msg string) bool {
	for _, prefix := range everyday {
		if strings.HasPrefix(msg, prefix) {
			return true
		}
	}
	return false
}
