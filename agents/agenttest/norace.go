//go:build !race

package agenttest

const raceEnabled = false
