package redfish

import (
	"context"
	"flag"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16") // the tests that are parallel wait for most of their time
	goleak.VerifyTestMain(m)
}

const (
	testUser   = "fencer"
	testUUID   = "6ad39b6a-1b52-4f28-86fc-e66df7d737e3"
	testSerial = "SN482FC62B"
)

// testPassword holds what shells, URLs, JSON and printf trip over.
const testPassword = `p"a's$s%s#w\o;r d:` + "`é漢!"

// startBMC runs a simulated BMC for the time of the test.
func startBMC(t testing.TB, change func(*redfishsim.Config)) *redfishsim.BMC {
	t.Helper()
	c := redfishsim.Config{Username: testUser, Password: testPassword, UUID: testUUID, Serial: testSerial}
	if change != nil {
		change(&c)
	}
	bmc, err := redfishsim.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bmc.Stop)
	return bmc
}

// options are those of an agent that trusts bmc by its pin.
func options(bmc *redfishsim.BMC) *Options {
	o := Kind().Options().(*Options)
	o.Address = bmc.URL()
	o.Username = testUser
	o.Password = agents.NewSecret(testPassword)
	o.PinSHA256 = bmc.CertPin()
	return o
}

// open makes a handle that is closed at the end of the test.
func open(t testing.TB, o *Options) *agent {
	t.Helper()
	h, err := o.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return h.(*agent)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that another goroutine or process brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
