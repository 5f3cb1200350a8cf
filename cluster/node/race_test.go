//go:build race

package node

// slowdown is what the race detector makes of the time that something takes.
const slowdown = 10
