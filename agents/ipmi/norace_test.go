//go:build !race

package ipmi

const raceEnabled = false
