//go:build !race

package resourcetest

const raceEnabled = false
