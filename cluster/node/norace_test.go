//go:build !race

package node

const slowdown = 1
