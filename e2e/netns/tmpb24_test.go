package netns
import "testing"
func TestTmpGuestShoots(t *testing.T) {
	l := newLab(t, shape{members: 2, witness: true, guest: "n1", prefer: map[string][]string{theGroup: {"n2"}}})
	l.powerOn(l.names...)
	l.booted(l.hosts["n1"])
	l.settled("forms", l.names...)
	l.coordinates("n1")
	if err := l.hosts["n2"].off(); err != nil { t.Fatal(err) }
	l.settled("n2 shot and back", l.names...)
	if s := l.shots(); len(s) != 1 { t.Errorf("%v", s) }
	for _, c := range l.device.commands() { t.Logf("%s %s by %q", c.action, c.node, c.by) }
	// and the guest is shot
	if err := l.hosts["n1"].freeze(t.Context()); err != nil { t.Fatal(err) }
	l.settled("n1 shot and back", l.names...)
	for _, c := range l.device.commands() { t.Logf("%s %s by %q", c.action, c.node, c.by) }
	if s := l.shots(); len(s) != 2 { t.Errorf("%v", s) }
}
