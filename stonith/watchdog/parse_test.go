package watchdog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// fakeSys makes a sysfs with one watchdog.
func fakeSys(t testing.TB, attributes map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	dir := filepath.Join(sys, "class/watchdog/watchdog0")
	if err := os.MkdirAll(filepath.Join(dir, "device"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range attributes {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../../../bus/platform/drivers/iTCO_wdt", filepath.Join(dir, "device/driver")); err != nil {
		t.Fatal(err)
	}
	return sys
}

func TestIdentify(t *testing.T) {
	sys := fakeSys(t, map[string]string{
		"dev": "248:0\n", "identity": "iTCO_wdt\n", "state": "active\n", "nowayout": "1\n", "options": "0x81a0\n", "timeout": "30\n",
		"timeleft": "29\n", "bootstatus": "32\n", "max_timeout": "613\n", "status": "0x8000\n", "fw_version": "4\n",
	})
	for path, number := range map[string]uint64{"/dev/watchdog0": unix.Mkdev(248, 0), "/dev/watchdog": unix.Mkdev(10, 130)} {
		id, err := identify(sys, path, number)
		if err != nil {
			t.Fatal(err)
		}
		want := Identity{Path: path, Device: "watchdog0", Known: true, Info: Info{Name: "iTCO_wdt", Options: 0x81a0, Firmware: 4}, Driver: "iTCO_wdt", State: StateActive,
			NoWayOut: true, Timeout: 30 * time.Second, TimeLeft: 29 * time.Second, Longest: 613 * time.Second, BootStatus: 32, HasBoot: true}
		if id != want || !id.CardReset() || !id.KeepsReset() || !id.Hardware() || !id.MagicClose() {
			t.Errorf("%s: %+v", path, id)
		}
		if notices := strings.Join(Notices(id), "\n"); !strings.Contains(notices, "nowayout") {
			t.Errorf("notices: %s", notices)
		}
	}
	if _, err := identify(sys, "/dev/null", unix.Mkdev(1, 3)); err == nil {
		t.Error("/dev/null is a watchdog")
	}
	if id, err := identify(fakeSys(t, map[string]string{"dev": "248:0\n"}), "/dev/watchdog0", unix.Mkdev(248, 0)); err != nil || id.Known {
		t.Errorf("a kernel that tells nothing: %+v, %v", id, err)
	}
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("opened what is not there")
	}
}

func TestJudge(t *testing.T) {
	id := Identity{Path: "/dev/watchdog0", Known: true, Info: Info{Name: "iTCO_wdt"}, Driver: "iTCO_wdt", HasBoot: true}
	begun := Test{Verdict: Begun, Device: "/dev/watchdog0", Identity: "iTCO_wdt", Driver: "iTCO_wdt", Boot: "b1", Timeout: 16 * time.Second, Lived: 15 * time.Second}
	passed := begun
	passed.Verdict = Passed
	for name, c := range map[string]struct {
		change func(*Test, *Identity)
		boot   string
		want   string
	}{
		"came back":           {nil, "b2", Passed},
		"still runs":          {nil, "b1", Begun},
		"reset by hand":       {func(t *Test, _ *Identity) { t.Lived = 5 * time.Second }, "b2", Unclear},
		"never armed":         {func(t *Test, _ *Identity) { t.Timeout = 0 }, "b2", Unclear},
		"the driver denies":   {func(_ *Test, i *Identity) { i.Options = unix.WDIOF_CARDRESET }, "b2", Unclear},
		"the driver agrees":   {func(_ *Test, i *Identity) { i.BootStatus = unix.WDIOF_CARDRESET }, "b2", Passed},
		"another device":      {func(_ *Test, i *Identity) { i.Path = "/dev/watchdog1" }, "b2", Unclear},
		"failed":              {func(t *Test, _ *Identity) { t.Verdict = Failed }, "b2", Failed},
		"passed long ago":     {func(t *Test, _ *Identity) { *t = passed }, "b9", Passed},
		"passed, other name":  {func(t *Test, i *Identity) { *t = passed; i.Name = "hpwdt" }, "b9", Void},
		"passed, other drive": {func(t *Test, i *Identity) { *t = passed; i.Driver = "wdat" }, "b9", Void},
	} {
		test, now := begun, id
		if c.change != nil {
			c.change(&test, &now)
		}
		dir := t.TempDir()
		if err := test.write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := Tested(dir, c.boot, now)
		if err != nil || got.Verdict != c.want || got.Passed() != (c.want == Passed) {
			t.Errorf("%s: %q (%s), %v; want %q", name, got.Verdict, got.Why, err, c.want)
		}
		// What was decided about a begun test stays, whatever the next boots say.
		if again, err := Tested(dir, "b7", id); c.want != Begun && test.Verdict == Begun && (err != nil || again.Verdict != c.want) {
			t.Errorf("%s: the second time %q, %v", name, again.Verdict, err)
		}
	}
}

func TestDecide(t *testing.T) {
	good := Claim{Boot: "b1", Armed: true, Tested: true, Expiry: time.Minute}
	for name, c := range map[string]struct {
		change func(*Case, *Claim)
		proven bool
		wait   time.Duration
		never  bool
	}{
		"in time":       {nil, true, 0, false},
		"too early":     {func(c *Case, _ *Claim) { c.Silent = time.Minute - 1 }, false, 1, false},
		"own is longer": {func(c *Case, _ *Claim) { c.Expiry = 2 * time.Minute }, false, time.Minute, false},
		"no claim":      {func(c *Case, _ *Claim) { c.Claim = nil }, false, 0, true},
		"other boot":    {func(c *Case, _ *Claim) { c.Boot = "b2" }, false, 0, true},
		"no boot":       {func(c *Case, l *Claim) { c.Boot, l.Boot = "", "" }, false, 0, true},
		"not armed":     {func(_ *Case, l *Claim) { l.Armed = false }, false, 0, true},
		"not tested":    {func(_ *Case, l *Claim) { l.Tested = false }, false, 0, true},
		"no time":       {func(_ *Case, l *Claim) { l.Expiry = 0 }, false, 0, true},
	} {
		claim := good
		the := Case{Boot: "b1", Claim: &claim, Silent: time.Minute, Expiry: time.Minute}
		if c.change != nil {
			c.change(&the, &claim)
		}
		if v := Decide(the); v.Proven != c.proven || v.Wait != c.wait || (v.Never != "") != c.never || v.Why == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func FuzzSysfs(f *testing.F) {
	f.Add("iTCO_wdt\n", "0x81a0\n", "30\n")
	f.Add("\xff\x1b[2J", "0xfffffffff", "-1")
	f.Fuzz(func(t *testing.T, name, options, timeout string) {
		id, err := identify(fakeSys(t, map[string]string{"dev": "248:0", "identity": name, "options": options, "timeout": timeout, "bootstatus": options}), "/dev/watchdog0", unix.Mkdev(248, 0))
		if err != nil || id.Timeout < 0 || strings.ContainsFunc(id.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%+v, %v", id, err)
		}
		Notices(id)
		Flags(id.Options)
	})
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"verdict":"begun","device":"/dev/watchdog0","boot":"b1","timeout_ns":16000000000,"lived_ns":1}`))
	f.Add([]byte(`{"armed":true,"heard_ns":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseNote(b); err == nil && (n.Heard < 0 || n.Fed < 0) {
			t.Fatalf("%+v", n)
		}
		test, err := parseTest(b)
		if err != nil {
			return
		}
		judged := judge(test, "b2", Identity{})
		if judged.Passed() && test.Verdict != Passed && test.Verdict != Begun {
			t.Fatalf("%+v became %+v", test, judged)
		}
		if _, err := json.Marshal(judged); err != nil {
			return // a year that JSON does not know
		}
	})
}
