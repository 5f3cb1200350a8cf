#!/bin/bash
# test.sh HAMGR   runs hamgr.service and hamgr-witness.service under a real systemd: HAMGR is the binary; and the tests of the resource kinds systemd and command. Root only; about four minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { sed -n '2p' "$0"; exit 2; }
[ -x "$1" ] || { echo "test.sh: no program at $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "test.sh: a host with a systemd of its own needs root" >&2; exit 1; }
W=$(mktemp -d)
host() { "$here/host.sh" "$W" "$@"; }
trap 'host down; rm -rf "$W"' EXIT

pass=0 fail=0
check() { # NAME COMMAND...: the command's output is shown if it fails
    local name=$1; shift
    if "$@" > "$W/out" 2>&1; then pass=$((pass + 1)); echo "ok   $name"
    else fail=$((fail + 1)); echo "FAIL $name"; sed 's/^/     /' "$W/out"; fi
}
on() { host exec "$@"; }
is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }
property() { on systemctl show -P "$1" hamgr; }
until_ok() { # SECS COMMAND...
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}
worker() { on 'pgrep -xf "/bin/sleep 86399"'; } # the service that the group runs
same_worker() { [ -n "$service" ] && is "$(worker)" "$service"; }
unit_pid() { on systemctl show -P MainPID worker; }

host up n1
host wait
host put "$1" /usr/bin/hamgr
host put "$here/../../systemd/hamgr.service" /etc/systemd/system/hamgr.service 644
host put "$here/../../systemd/hamgr-groups.target" /etc/systemd/system/hamgr-groups.target 644
check "systemd-analyze verify finds nothing" is "$(on systemd-analyze verify --man=no /etc/systemd/system/hamgr.service 2>&1)" ""

# Without a configuration it fails, and is not tried for ever.
on systemctl daemon-reload
check "it does not start without a configuration" is "$(on 'systemctl start hamgr 2>&1 || echo refused' | tail -1)" refused
check "and gives up" until_ok 20 bash -c "[ \$('$here/host.sh' '$W' exec systemctl show -P ActiveState hamgr) = failed ]"
check "because of its configuration" is "$(property ExecMainStatus)" 2
on systemctl reset-failed hamgr

on mkdir -p /etc/hamgr
cat > "$W/hamgr.toml" <<'T'
[cluster]
name = "one"
key_file = "/etc/hamgr/cluster.key"

[[node]]
name = "n1"
addresses = ["127.0.0.1"]
fencing = [["n1-bmc"]]

[[fence_device]]
name = "n1-bmc"
agent = "redfish"
address = "https://127.0.0.9"
username = "fencer"
password_file = "/etc/hamgr/bmc"

[[group]]
name = "work"

[[group.resource]]
name = "sleep"
kind = "command"
run = ["/bin/sleep", "86399"]

[[group.resource]]
name = "unit"
kind = "systemd"
unit = "worker.service"
T
host exec 'cat > /etc/systemd/system/worker.service' <<'T'
[Service]
ExecStart=/bin/sleep 86398
Restart=always
T
on systemctl daemon-reload
host put "$W/hamgr.toml" /etc/hamgr/hamgr.toml 600
on 'umask 077; echo secret > /etc/hamgr/bmc; hamgr init --single' > /dev/null 2>&1
check "the configuration is valid" on hamgr config check
check "it starts and says that it is ready" on systemctl enable --now hamgr
check "it is running" is "$(property ActiveState) $(property SubState) $(property NotifyAccess)" "active running main"
check "status answers on its socket" on hamgr status
check "its folders are private" is "$(on stat -c %a /var/lib/hamgr)" 700
check "its watchdog is armed" is "$(property WatchdogUSec)" 10s
check "it is the last to be killed for memory" is "$(property OOMScoreAdjust)" -999
check "it may lock its memory" is "$(property LimitMEMLOCK)" infinity
check "what it mounts is seen by the host" is "$(on 'readlink /proc/1/ns/mnt')" "$(on "readlink /proc/$(property MainPID)/ns/mnt")"

check "the group starts" until_ok 30 worker
check "so does its unit" until_ok 10 bash -c "'$here/host.sh' '$W' exec systemctl is-active worker"
check "the group's process has a unit of its own" on 'grep -F "hamgr.slice/hamgr-work:sleep.service" /proc/$(pgrep -xf "/bin/sleep 86399")/cgroup'
check "with the token" on "tr '\\0' '\\n' < /proc/$(unit_pid)/environ | grep -x 'HAMGR_TOKEN=[1-9][0-9]*'"
service=$(worker || true) daemon=$(property MainPID) unit=$(unit_pid)
check "a restart takes less than the detection time" on 'timeout 3 systemctl restart hamgr'
check "the group's process is still the same" same_worker
check "the daemon's is not" bash -c "[ $(property MainPID) != $daemon ]"
check "hamgr finds it running" until_ok 30 bash -c "'$here/host.sh' '$W' exec hamgr status | grep -q running"

daemon=$(property MainPID)
on "kill -9 $daemon"
check "a crash is followed by a start" until_ok 5 bash -c "pid=\$('$here/host.sh' '$W' exec systemctl show -P MainPID hamgr); [ \$pid != 0 ] && [ \$pid != $daemon ]"
check "the group's process has survived it" same_worker
check "so has its unit" is "$(unit_pid)" "$unit"
check "it is ready again" until_ok 10 bash -c "'$here/host.sh' '$W' exec systemctl is-active hamgr"

daemon=$(property MainPID)
on "kill -STOP $daemon"
check "the watchdog ends a daemon that hangs" until_ok 25 bash -c "'$here/host.sh' '$W' journal -u hamgr | grep -q 'Watchdog timeout'"
check "and starts it again" until_ok 25 bash -c "pid=\$('$here/host.sh' '$W' exec systemctl show -P MainPID hamgr); [ \$pid != 0 ] && [ \$pid != $daemon ]"
check "the group's process has survived that too" same_worker

# Real time is for the daemon's threads, and for nothing that it starts.
policies() { on "cut -d')' -f2 /proc/$1/task/*/stat | cut -d' ' -f40" | sort -u; } # proc_pid_stat(5), field 41
check "the group's process is ordinary" is "$(policies "$service")" 0
check "so is its unit's" is "$(policies "$unit")" 0
check "the daemon is ready again" until_ok 20 bash -c "'$here/host.sh' '$W' exec systemctl is-active hamgr"
refused=$(on "journalctl -u hamgr -o cat | grep -c 'no real-time scheduling'" || true)
wanted=$([ "$refused" = 0 ] && echo 2 || echo 0) # SCHED_RR, SCHED_OTHER
real_time() { is "$(policies "$(property MainPID)")" "$wanted"; }
# One that starts a program or waits for its end is ordinary for that while.
check "the daemon's threads are real-time, all of them, if they may" until_ok 10 real_time

. "$here/ending.sh"

[ $fail = 0 ] || { echo; host journal -u hamgr -n 60; }

# The witness: the same binary, as a user without privileges, for the cluster of n1 once that has one more voter.
witness() { on systemctl show -P "$1" hamgr-witness; }
host put "$here/../../systemd/hamgr-witness.service" /etc/systemd/system/hamgr-witness.service 644
host put "$here/../../systemd/hamgr-witness.sysusers.conf" /usr/lib/sysusers.d/hamgr-witness.conf 644
on systemd-sysusers
on systemctl daemon-reload
check "systemd-analyze verify finds nothing about the witness" is "$(on systemd-analyze verify --man=no /etc/systemd/system/hamgr-witness.service 2>&1)" ""
cat > "$W/other.toml" <<'T'
[cluster]
name = "other"
key_file = "/nonexistent/key"
port = 7946

[[node]]
name = "o1"
addresses = ["127.0.0.11"]
fencing = [["o1-bmc"]]

[[node]]
name = "quorum"
addresses = ["127.0.0.1"]
role = "witness"

[[fence_device]]
name = "o1-bmc"
agent = "redfish"
address = "https://127.0.0.19"
username = "fencer"
password_file = "/nonexistent/secret"
T
check "the witness starts with an empty folder" on systemctl enable --now hamgr-witness
host put "$W/other.toml" /etc/hamgr/witness/other.toml 644
on 'hamgr init --key-file /etc/hamgr/witness/other.key && chown hamgr-witness: /etc/hamgr/witness/other.key' > /dev/null 2>&1
check "a reload has it look at its folder" on systemctl reload hamgr-witness
check "it serves the cluster" until_ok 15 bash -c "'$here/host.sh' '$W' exec 'hamgr witness status' | grep -q 'other.*serving'"
check "and says that nobody else is there" is "$(on 'hamgr witness status > /dev/null 2>&1; echo $?')" 1
check "its socket answers" on 'hamgr status --socket /run/hamgr-witness/other/hamgr.sock'
check "it runs as a user of its own" is "$(on "stat -c %U /proc/$(witness MainPID)")" hamgr-witness
check "without any capability" on "grep -x 'CapEff:.0000000000000000' /proc/$(witness MainPID)/status"
check "its watchdog is armed" is "$(witness WatchdogUSec)" 10s
# Where the machine lets systemd raise the limits, both are had; where not, that is said once and no more.
soft() { # LIMIT WANT MESSAGE
    local said=0; on "grep -q '$1 *$2 ' /proc/$(witness MainPID)/limits" || said=1
    is "$(on "journalctl -u hamgr-witness | grep -c '$3'")" $said
}
check "its memory is locked, if it may" soft 'Max locked memory' unlimited 'memory is not locked'
check "it is real-time, if it may" soft 'Max realtime priority' 10 'no real-time scheduling'
sleep 12
check "it feeds its watchdog" is "$(witness NRestarts)" 0
check "it stops in order" on 'timeout 20 systemctl stop hamgr-witness'
check "and leaves no socket" on '! test -e /run/hamgr-witness/other/hamgr.sock'
[ $fail = 0 ] || { echo; host journal -u hamgr-witness -n 40; }


# The resource kinds that drive units, on the same systemd: their own tests, with those that need a host to do
# anything to (host_*test.go). Elsewhere they have a fake one.
for kind in systemd command; do
    (cd "$here/../.." && CGO_ENABLED=0 "${GO:-go}" test -tags systemdhost -c -o "$W/$kind.test" ./resources/$kind)
    host put "$W/$kind.test" /root/$kind.test
    check "resources/$kind passes its tests" on "cd /root && ./$kind.test -test.timeout 280s"
done
echo "$pass passed, $fail failed"
[ $fail = 0 ]
