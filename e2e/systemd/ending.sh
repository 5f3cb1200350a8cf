# ending.sh   is read by test.sh: why a daemon ends, as systemd has it, and what becomes of its groups. The group of n1 runs, and
# has nowhere else to go.

begin() { # from here on `said` looks
    on journalctl -u hamgr -q --cursor-file=/run/mark > /dev/null
}
said() { # PATTERN
    on "cp /run/mark /run/look; journalctl -u hamgr -q -o cat --cursor-file=/run/look | grep -e '$1'"
}
unsaid() { if said "$1"; then return 1; fi; }
answers() { until_ok 20 on 'hamgr status --json | grep -q "\"state\":[ ]*\"running\""'; }
ended() { [ "$(property ActiveState)" = inactive ]; }
gone() { if worker; then return 1; fi; is "$(on 'systemctl is-active worker')" inactive; }
other_daemon() { [ "$(property MainPID)" != 0 ] && [ "$(property MainPID)" != "$daemon" ]; }
drop_in() { # UNIT NAME TEXT
    on "mkdir -p /etc/systemd/system/$1.d && printf '$3' > /etc/systemd/system/$1.d/$2.conf && systemctl daemon-reload"
}

stays() { # NAME REASON COMMAND   the command ends the daemon, which comes back and finds all as it was
    service=$(worker) unit=$(unit_pid) daemon=$(property MainPID)
    begin
    on "$3"
    check "$1: another daemon is there" until_ok 20 other_daemon
    check "$1: it says that it will be back" until_ok 10 said "\"daemon restarts\".*$2"
    check "$1: all is found" until_ok 20 answers
    check "$1: nothing was stopped" unsaid 'resource stopped'
    check "$1: the group's process is the same" same_worker
    check "$1: and so is its unit's" is "$(unit_pid)" "$unit"
}
leaves() { # NAME COMMAND   the command ends the daemon, which takes its groups with it
    check "$1: the group runs" until_ok 30 worker
    begin
    on "$2"
    check "$1: the daemon has ended" until_ok 30 ended
    check "$1: and its groups" gone
    check "$1: in their order" is "$(said 'resource stopped' | grep -o '"resource":"[a-z]*"' | tr -d '\n')" '"resource":"unit""resource":"sleep"'
    check "$1: nothing was killed" unsaid 'timed out\|Killing\|SIGKILL'
}

# One that has not joined yet has nobody to tell.
check "the daemon that came back has joined" until_ok 20 on 'hamgr status --json | grep -q "\"state\":[ ]*\"active\""'
stays "restart" "service is restarted" "systemctl restart hamgr"
drop_in hamgr.service package '[Service]\nEnvironment=PACKAGE=2\n'
stays "try-restart with another unit file" "service is restarted" "systemctl try-restart hamgr"
stays "restart after daemon-reexec" "service is restarted" "systemctl daemon-reexec && systemctl restart hamgr"
on "printf '[Service]\nExecStart=/bin/sleep 86397\n' > /etc/systemd/system/base.service"
drop_in hamgr.service part '[Unit]\nPartOf=base.service\n'
on systemctl start base
stays "restart of what it is part of" "service is restarted" "systemctl restart base"
stays "a signal" "a signal" "systemctl kill --kill-who=main -s TERM hamgr"
on systemctl stop dbus.socket dbus.service
stays "restart without D-Bus" "service is restarted" "systemctl restart hamgr"
on systemctl start dbus.socket dbus.service

# Nobody is told of a daemon that is sent away while no systemd can be asked: that is a host which goes down at once.
leaves "stop" "systemctl stop hamgr"
check "what restarts need is kept" on test -d /run/hamgr
on systemctl start hamgr
drop_in worker.service slow '[Service]\nExecStop=/bin/sleep 9\n'
drop_in hamgr.service short '[Service]\nTimeoutStopSec=4s\n'
leaves "stop of a group that takes longer than the unit has" "systemctl stop hamgr"
check "it says what it waits for" said 'waiting for groups to leave.*work'
on 'rm -r /etc/systemd/system/worker.service.d /etc/systemd/system/hamgr.service.d; systemctl daemon-reload; systemctl start hamgr'
on "printf '[Unit]\nConflicts=hamgr.service\n[Service]\nExecStart=/bin/sleep 86396\n' > /etc/systemd/system/enemy.service; systemctl daemon-reload"
leaves "start of what it conflicts with" "systemctl start enemy; while systemctl is-active -q hamgr || [ \$(systemctl is-active hamgr) = deactivating ]; do sleep 0.1; done"
on 'systemctl stop enemy; systemctl start hamgr'
on "printf '[Unit]\nAllowIsolate=yes\nRequires=sysinit.target dbus.service\n' > /etc/systemd/system/quiet.target; systemctl daemon-reload"
leaves "isolate" "systemctl isolate quiet.target; while [ \$(systemctl is-active hamgr) = deactivating ]; do sleep 0.1; done"
on systemctl start hamgr
check "and it comes back with its group" until_ok 30 worker

off() { ! on true 2> /dev/null; }
before=$(on cat /etc/machine-id)
last() { on "journalctl -D /var/log/journal/$before -q -o cat -n 500 | grep -e '$1'"; }
unlast() { if last "$1"; then return 1; fi; }
on systemctl poweroff || true
check "poweroff: the host goes down" until_ok 60 off
host down; host up n1; host wait
check "poweroff: its groups left in their order" is "$(last 'resource stopped' | tail -2 | grep -o '"resource":"[a-z]*"' | tr -d '\n')" '"resource":"unit""resource":"sleep"'
check "poweroff: before hamgr ended" is "$(last 'resource stopped\|Stopped hamgr.service' | tail -1 | cut -c1-21)" "Stopped hamgr.service"
check "poweroff: nothing was killed" unlast 'timed out\|Killing\|SIGKILL'
check "poweroff: all is there after the next boot" until_ok 30 worker
