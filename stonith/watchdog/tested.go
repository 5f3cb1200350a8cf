package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// TestFile is the record of the last test, in the data directory.
const TestFile = "watchdog-test.json"

// The verdicts on a watchdog.
const (
	Untested = ""
	Begun    = "begun"   // not decided yet
	Passed   = "passed"  // it reset the host
	Failed   = "failed"  // it did not
	Unclear  = "unclear" // the host went down, and nothing shows that it was the watchdog
	Void     = "void"    // it passed, and the watchdog is another one now
)

// Test is the record of a test, and the verdict on it.
type Test struct {
	Verdict  string        `json:"verdict"`
	Why      string        `json:"why,omitempty"` // what is missing from passed, or what it rests on
	Node     string        `json:"node,omitempty"`
	Device   string        `json:"device"`
	Identity string        `json:"identity,omitempty"` // of the opened device
	Driver   string        `json:"driver,omitempty"`
	Firmware uint32        `json:"firmware,omitempty"`
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Boot     string        `json:"boot"`        // in which it was begun
	At       time.Time     `json:"at,omitzero"` // by the wall clock, for display only
	// Lived is how long after the last feeding the host was last seen to run.
	Lived time.Duration `json:"lived_ns,omitempty"`
}

// Passed tells whether the watchdog may be counted on.
func (t Test) Passed() bool { return t.Verdict == Passed }

// Tested gives the verdict on the host's last test, and makes it durable when the host has come back from one. The
// boot is the present one, id what is known of the watchdog now.
func Tested(dataDir, boot string, id Identity) (Test, error) {
	t, err := readTest(dataDir)
	if err != nil {
		return Test{Verdict: Unclear, Why: "its record cannot be read"}, err
	}
	judged := judge(t, boot, id)
	if t.Verdict == Begun && judged.Verdict != Begun {
		err = judged.write(dataDir)
	}
	return judged, err
}

// judge decides by what outlived the host. That it came back proves nothing: somebody may have reset it. So the record has to
// show that it ran until shortly before the watchdog was due, and not after; and the driver must not contradict.
func judge(t Test, boot string, id Identity) Test {
	switch {
	case t.Verdict == Untested:
		t.Why = "it was never tested: hamgr watchdog test"
	case t.Verdict == Passed:
		if why := differs(t, id); why != "" {
			t.Verdict, t.Why = Void, why
		}
	case t.Verdict != Begun:
	case boot == "" || t.Boot == boot:
		t.Why = "the test was begun in this boot, and the host still runs"
	default:
		t.Verdict, t.Why = judgeReset(t, id)
	}
	return t
}

func judgeReset(t Test, id Identity) (verdict, why string) {
	early := t.Timeout - max(t.Timeout/4, 3*beat)
	switch diff := differs(t, id); {
	case t.Timeout <= 0:
		return Unclear, "the host went down before the watchdog was armed"
	case diff != "":
		return Unclear, diff
	case t.Lived < early:
		return Unclear, fmt.Sprintf("the host was last seen to run %s after the last feeding, long before the timeout of %s: something else may have reset it", t.Lived.Round(time.Second), t.Timeout)
	case id.CardReset():
		return Passed, "the driver says that the watchdog reset the host"
	case id.KeepsReset():
		return Unclear, "the driver keeps the reason of the last boot, and says that it was not the watchdog"
	default:
		return Passed, fmt.Sprintf("the host was last seen to run %s after the last feeding, with a timeout of %s", t.Lived.Round(time.Second), t.Timeout)
	}
}

// differs says what is not as it was in the test. What is not known now is compared when the device is opened.
func differs(t Test, id Identity) string {
	switch {
	case id.Path != "" && id.Path != t.Device:
		return fmt.Sprintf("the test was of %s, configured is %s", t.Device, id.Path)
	case !id.Known:
		return ""
	case t.Identity != "" && id.Name != t.Identity:
		return fmt.Sprintf("the test was of %q, now it is %q", t.Identity, id.Name)
	case id.Driver != t.Driver:
		return fmt.Sprintf("the test was with the driver %q, now it is %q", t.Driver, id.Driver)
	}
	return ""
}

// discredit records that a watchdog did not fire when it should have.
func discredit(dataDir, why string) (Test, error) {
	t, err := readTest(dataDir)
	if err != nil {
		t = Test{} // what cannot be read is overwritten: this is newer
	}
	t.Verdict, t.Why = Failed, why
	return t, t.write(dataDir)
}

// end records the verdict.
func (t Test) end(dataDir, verdict, why string) error {
	t.Verdict, t.Why = verdict, why
	return t.write(dataDir)
}

func readTest(dataDir string) (Test, error) {
	path := filepath.Join(dataDir, TestFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Test{}, nil
	}
	if err != nil {
		return Test{}, fmt.Errorf("the watchdog's test: %w", err)
	}
	t, err := parseTest(b)
	if err != nil {
		return Test{}, fmt.Errorf("the watchdog's test: %s: %w", path, err)
	}
	return t, nil
}

func parseTest(b []byte) (Test, error) {
	var t Test
	if err := json.Unmarshal(b, &t); err != nil {
		return Test{}, err
	}
	switch t.Verdict {
	case Begun, Passed, Failed, Unclear, Void:
	default:
		return Test{}, fmt.Errorf("the verdict %q is not known", t.Verdict)
	}
	if t.Boot == "" && t.Verdict != Failed || t.Timeout < 0 || t.Lived < 0 {
		return Test{}, errors.New("it is not whole")
	}
	return t, nil
}

// write makes it durable: the host may be reset at any time.
func (t Test) write(dataDir string) error {
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dataDir, TestFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(dataDir)
	}
	if err != nil {
		return fmt.Errorf("record the watchdog's test: %w", err)
	}
	return nil
}
