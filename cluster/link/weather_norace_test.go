//go:build !race

package link_test

// schedules of random weather.
const schedules = 300
