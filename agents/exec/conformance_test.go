package exec

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
)

// blade is a fence agent whose device is a folder, and which does as it is told by files.
const blade = `
put() { echo $2 >$d/$1.$$; mv $d/$1.$$ $d/$1; }
while test -e $d/frozen; do sleep 0.01; done
test -e $d/gone && { echo "Connection refused" >&2; exit 1; }
printf '%s' "$password" | cmp -s - $d/password || { echo "Authentication failed for $password" >&2; exit 1; }
read state <$d/state
case $action in
status)
	test -e $d/odd && . $d/odd
	test $state = off && { echo "Status: OFF"; exit 2; }
	echo "Status: ON"
	;;
list) printf '7,blade\n8,blade\n' ;;
on | off)
	echo $action >>$d/commands
	test -e $d/stuck && exit 0
	# The device goes its own way: it is no part of the agent's process group, which ends with the agent.
	test -e $d/lag && {
		setsid sh -c "touch $d/ordered; sleep 0.3; echo $action >$d/state.lag; mv $d/state.lag $d/state" </dev/null >/dev/null 2>&1 &
		while ! test -e $d/ordered; do sleep 0.01; done
		exit 0
	}
	put state $action
	test -e $d/fails && { echo "Failed: Timed out waiting to power $action" >&2; exit 1; }
	;;
esac
exit 0
`

func TestConformance(t *testing.T) {
	agenttest.Run(t, func(t testing.TB) *agenttest.Peer {
		s := script(t, blade)
		s.write("state", "on\n")
		s.write("password", testPassword)
		device := func(command, plug, password string) agenttest.Device {
			return agenttest.Device{Plug: plug, Open: func(log *slog.Logger) (agents.Agent, error) {
				o := s.options()
				o.Command = command
				o.Secrets["password"] = agents.NewSecret(password)
				return o.Open(log)
			}}
		}
		wrong := device(s.path, "7", "not-"+testPassword)
		gone, stalled := script(t, blade), script(t, "sleep 60")
		gone.write("gone", "")
		unreachable, mute := device(gone.path, "7", testPassword), device(stalled.path, "7", testPassword)
		flag := func(name string) func() { return func() { s.write(name, "") } }
		return &agenttest.Peer{
			Device:  device(s.path, "7", testPassword),
			Secrets: []string{testPassword},
			Power: func() agents.PowerState {
				var state agents.PowerState
				state.UnmarshalText([]byte(strings.TrimSpace(s.read("state"))))
				return state
			},
			SetPower:      func(p agents.PowerState) { s.write("state", p.String()+"\n") },
			Commands:      func() int { return strings.Count(s.read("commands"), "\n") },
			WrongPassword: &wrong,
			Unreachable:   &unreachable,
			Stalled:       &mute,
			Stuck:         flag("stuck"),
			Fails:         flag("fails"),
			Lag:           flag("lag"),
			Odd: map[string]func(){
				"an odd word":                func() { s.write("odd", `echo "Status: POWERING"; exit 2`) },
				"off as a success":           func() { s.write("odd", `echo "Status: OFF"; exit 0`) },
				"off without words":          func() { s.write("odd", `exit 2`) },
				"off as a failure":           func() { s.write("odd", `echo "Status: OFF"; exit 1`) },
				"on with the status of off":  func() { s.write("odd", `echo "Status: ON"; exit 2`) },
				"off, and killed":            func() { s.write("odd", `echo "Status: OFF"; kill -9 $$`) },
				"both":                       func() { s.write("odd", `echo "Status: OFF"; echo "Status: ON"; exit 2`) },
				"off, and a flood behind it": func() { s.write("odd", `echo "Status: OFF"; head -c 200000 /dev/zero; exit 2`) },
			},
			Freeze: flag("frozen"),
			Thaw:   func() { syscall.Unlink(s.file("frozen")) },
			Cannot: map[string]string{
				"Sessions":  "a fence agent is a process a call; that none is left is checked at the end of each",
				"Identity":  "fence agents do not tell whom they power",
				"WrongPlug": "in reading and switching, fence agents do not tell it from other failures; Check does",
				"Restart":   "there is nothing between two calls that could be lost",
			},
		}
	})
}
