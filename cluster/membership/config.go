package membership

import (
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/hamgr/hamgr/cluster/link"
)

// packetSize is the most that memberlist puts into one packet, as it counts: it forgets the
// checksum, and where it adds gossip to a message, that message's own length field
// (memberlist v0.7.0, sendMsg and rawSendMsgPacket). What is larger goes over a stream.
const packetSize = link.MaxPayload - checksumSize - lengthSize

const (
	checksumSize = 5
	lengthSize   = 2
)

// config is memberlist's configuration for this pace. go-metrics is left at its default,
// which throws everything away and starts nothing.
func (t Timing) config(self string, tr *transport, d *delegate, logger *slog.Logger) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = self
	c.Transport = tr
	c.RequireNodeNames = true
	c.ProbeInterval = t.ProbeInterval
	c.ProbeTimeout = t.ProbeTimeout
	c.GossipInterval = t.GossipInterval
	c.GossipNodes = t.GossipNodes
	c.SuspicionMult = t.SuspicionMult
	c.SuspicionMaxTimeoutMult = 1 // constant: with fewer than five nodes confirmations play no part
	c.RetransmitMult = t.RetransmitMult
	c.PushPullInterval = t.PushPullInterval
	c.TCPTimeout = t.StreamTimeout
	c.IndirectChecks = 3
	c.AwarenessMaxMultiplier = 1
	c.GossipToTheDeadTime = t.ForgetTime
	c.EnableCompression = false
	c.SecretKey = nil
	c.UDPBufferSize = packetSize
	c.Delegate = d
	c.Events = d
	c.Alive = d
	c.Merge = d
	c.LogOutput = nil
	c.Logger = log.New(lineLog{logger}, "", 0)
	return c
}

// lineLog takes memberlist's lines into slog, all at debug: what an operator must hear is
// said by those who judge the events.
type lineLog struct{ log *slog.Logger }

func (l lineLog) Write(p []byte) (int, error) {
	l.log.Debug("gossip protocol", "text", strings.TrimSpace(string(p)))
	return len(p), nil
}
