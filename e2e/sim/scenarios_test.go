package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a test on a cluster that has started, in virtual time.
func run(t *testing.T, o Options, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, o)
		c.Start()
		f(t, c)
		if !t.Failed() && c.Problems() != nil {
			t.Fail()
		}
	})
}

func TestStart(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		time.Sleep(20 * time.Second)
		if n := len(c.State().Operations); n != 0 {
			t.Errorf("%d fencing operations in a healthy cluster", n)
		}
	})
}

func TestCrashOfOwner(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		owner := c.Owner("db")
		began := time.Now()
		c.Crash(owner)
		c.WaitFor(2*c.Detection, "another node has it", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		t.Logf("taken over after %s", time.Since(began))
	})
}

func TestDump(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		owner := c.Owner("db")
		c.Crash(owner)
		time.Sleep(30 * time.Second)
		t.Log(c.Report())
	})
}
