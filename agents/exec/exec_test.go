package exec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// labDevice is an agent that is written with the agents' own library, on a folder with two outlets.
func labDevice(t *testing.T) (o *Options, outlet func(string) string) {
	t.Helper()
	command, dir := lab(t)
	for _, name := range []string{"7", "8"} {
		if err := os.WriteFile(filepath.Join(dir, "outlet-"+name), []byte("on"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o = Kind().Options().(*Options)
	o.Command = command
	o.Options = map[string]string{"ip": dir, "power_timeout": "1"}
	return o, func(name string) string {
		b, _ := os.ReadFile(filepath.Join(dir, "outlet-"+name))
		return string(b)
	}
}

func TestLibraryAgent(t *testing.T) {
	t.Parallel()
	o, outlet := labDevice(t)
	h := open(t, o)
	ctx := within(t, 30*time.Second)
	reads := func(plug string, want agents.PowerState) {
		t.Helper()
		if r, err := h.Status(ctx, plug); err != nil || r.State != want {
			t.Errorf("plug %s: %v %q, %v; want %v", plug, r.State, r.Detail, err, want)
		}
	}
	reads("7", agents.On)
	if err := h.Check(ctx, "7"); err != nil {
		t.Error(err)
	}
	if err := h.Off(ctx, "7"); err != nil || outlet("7") != "off" || outlet("8") != "on" {
		t.Errorf("%v; the outlets are %q and %q", err, outlet("7"), outlet("8"))
	}
	reads("7", agents.Off)
	reads("8", agents.On)
	if err := h.On(ctx, "7"); err != nil || outlet("7") != "on" {
		t.Errorf("%v; the outlet is %q", err, outlet("7"))
	}
	reads("7", agents.On)

	// A plug that does not exist is never off, and Check says so.
	if r, err := h.Status(ctx, "9"); err == nil || r.State != agents.Unknown {
		t.Errorf("no such plug: %v, %v", r, err)
	}
	if miss := errWith(h.Check(ctx, "9"), agents.ErrPlug, `plug "9"`, "no such plug; it has 7, 8"); miss != "" {
		t.Error(miss)
	}
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := h.Status(ctx, "7"); err == nil {
		t.Error("a closed handle works")
	}
}

// An agent that the library thinks is for several plugs is off only if the one that was named is.
func TestSeveralPlugsInOne(t *testing.T) {
	o, outlet := labDevice(t)
	h := open(t, o)
	if miss := errWith(h.Off(within(t, 10*time.Second), "7,8"), agents.ErrPlug, "would take the plug for several"); miss != "" || outlet("7") != "on" || outlet("8") != "on" {
		t.Errorf("%s; the outlets are %q and %q", miss, outlet("7"), outlet("8"))
	}
}

// The agent is told to give up before it is killed, so that it can log out.
func TestAgentGivesUpFirst(t *testing.T) {
	t.Parallel()
	command, dir := lab(t)
	if err := os.WriteFile(dir+"/outlet-7", []byte("on"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Commands are accepted and ignored.
	text, err := os.ReadFile(command)
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, command, strings.Replace(string(text), "    os.rename(path + \".new\", path)\n", "", 1))
	o := Kind().Options().(*Options)
	o.Command = command
	o.Options = map[string]string{"ip": dir}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err = open(t, o).Off(ctx, "7")
	if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "Timed out waiting to power OFF") {
		t.Errorf("%v (the context: %v)", err, ctx.Err())
	}
}

// What the agent printed in the list is searched by number and by name.
func TestFindPlug(t *testing.T) {
	for _, c := range []struct {
		name, list, plug, separator string
		found                       bool
	}{
		{"number", "1,Outlet 1\n2,Outlet 2\n", "2", ",", true},
		{"name", "1,Outlet 1\n2,Outlet 2\n", "Outlet 2", ",", true},
		{"other case", "1,Blade\n", "BLADE", ",", true},
		{"neither", "1,Outlet 1\n2,Outlet 2\n", "3", ",", false},
		{"part of a number", "10,x\n", "1", ",", false},
		{"a number that is another's name", "3,9\n4,Outlet 4\n", "9", ",", false},
		{"a number that is another's name, several switches", "1:3,9\n", "9", ",", false},
		{"a number as a name among names", "blade,9\n", "9", ",", true},
		{"other separator", "1;x\n", "1", ";", true},
		{"spaces", " 1 , x \r\n", "1", ",", true},
		{"no list", "N/A\n", "3", ",", true},
		{"not working", "NOTICE: List option is not working on this device yet\n", "3", ",", true},
		{"empty", "", "3", ",", true},
		{"no name", "1,\n", "1", ",", true},
	} {
		err := findPlug(result{stdout: c.list}, []string{c.plug}, c.separator, censor{})
		if (err == nil) != c.found || err != nil && agents.TroubleOf(err) != agents.WrongPlug {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := findPlug(result{stdout: "1,x\n", cut: true}, []string{"1"}, ",", censor{}); err != nil {
		t.Errorf("found before the end of a list that is cut: %v", err)
	}
	if err := findPlug(result{stdout: "1,x\n", cut: true}, []string{"2"}, ",", censor{}); !errors.Is(err, agents.ErrProtocol) {
		t.Errorf("not found in a list that is cut: %v", err)
	}
	long := findPlug(result{stdout: strings.Repeat("100\x1b,x\n", 1000)}, []string{"1"}, ",", censor{})
	if long == nil || len(long.Error()) > 500 || !strings.Contains(long.Error(), "988 more") || strings.Contains(long.Error(), "\x1b") {
		t.Errorf("%v", long)
	}
}

// A monitor that fails is a failed check, and nothing is switched by one.
func TestCheck(t *testing.T) {
	s := script(t, `echo $action >>$d/actions; case $action in monitor) test -e $d/deaf && { echo "Connection timed out" >&2; exit 1; };; list) echo "7,blade";; esac; exit 0`)
	h := open(t, s.options())
	if err := h.Check(within(t, 5*time.Second), "7"); err != nil {
		t.Error(err)
	}
	if miss := errWith(h.Check(within(t, 5*time.Second), "8"), agents.ErrPlug, "it has 7"); miss != "" {
		t.Error(miss)
	}
	s.write("deaf", "")
	if miss := errWith(h.Check(within(t, 5*time.Second), "7"), agents.ErrUnreachable, "monitor: ", "Connection timed out"); miss != "" {
		t.Error(miss)
	}
	if strings.Contains(s.read("actions"), "on\n") && strings.Contains(s.read("actions"), "off") || s.read("actions") != "monitor\nlist\nmonitor\nlist\nmonitor\n" {
		t.Errorf("actions: %q", s.read("actions"))
	}
}

// An off of a plug that the device does not list is no off: it is looked for once a handle.
func TestOffOfNoPlug(t *testing.T) {
	s := script(t, `case $action in list) echo x >>$d/lists; test -e $d/deaf && exit 1; echo "7,blade"; exit 0;; esac; echo "Status: OFF"; exit 2`)
	h := open(t, s.options())
	for range 3 {
		if r, err := h.Status(within(t, 5*time.Second), "7"); err != nil || r.State != agents.Off {
			t.Errorf("%v, %v", r, err)
		}
	}
	if s.read("lists") != "x\n" {
		t.Errorf("lists: %q", s.read("lists"))
	}
	r, err := h.Status(within(t, 5*time.Second), "8")
	if miss := errWith(err, agents.ErrPlug, "no such plug; it has 7"); miss != "" || r.State != agents.Unknown {
		t.Errorf("%v, %s", r, miss)
	}
	s.write("deaf", "")
	if r, err := open(t, s.options()).Status(within(t, 5*time.Second), "7"); err == nil || r.State != agents.Unknown {
		t.Errorf("no list: %v, %v", r, err)
	}
}
