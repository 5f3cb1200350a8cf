//go:build race

package link_test

// schedules of random weather: fewer where each costs ten times as much.
const schedules = 40
