#!/bin/bash
# host.sh DIR up NAME | wait | exec CMD... | put FILE DEST [MODE] | journal | down
# One host with a real systemd as PID 1 of pid, mount, net, uts, ipc and cgroup namespaces of its own, on
# a Debian root of its own. It needs root, and neither a systemd on the machine nor a virtual machine.
# `exec` takes one argument as a shell command, several as they are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin
[ $# -ge 2 ] || { sed -n '2,5p' "$0"; exit 2; }
mkdir -p "$1"; h=$(cd "$1" && pwd -P); verb=$2; shift 2
# What no process of the host may have: the machine's clock, modules, kernel log, raw I/O, device nodes.
nocaps=-sys_time,-sys_module,-sys_rawio,-syslog,-wake_alarm,-block_suspend,-mknod
die() { echo "host.sh: $*" >&2; exit 1; }

# The unified hierarchy, wherever this machine has it (it needs no controllers).
cgroup() {
    local m
    m=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
    [ -n "$m" ] || { m=$h/cgroup; mkdir -p "$m"; mount -t cgroup2 none "$m"; }
    echo "$m/hamgr-$(printf %s "$h" | sha256sum | cut -c1-8)"
}

pid1() { # the PID of the running host's systemd, or fail
    local p t
    read -r p t 2>/dev/null < "$h/pid" || return 1
    [ "$(cut -d' ' -f22 "/proc/$p/stat" 2>/dev/null)" = "$t" ] || return 1
    # Before it is systemd its root is still the machine's: nobody may enter then.
    case $(cat "/proc/$p/comm" 2>/dev/null) in systemd*) echo "$p" ;; *) return 1 ;; esac
}

waitfor() { # SECS COMMAND...
    local end=$((SECONDS + $1)); shift
    until "$@" > /dev/null; do [ $SECONDS -lt $end ] || return 1; sleep 0.02; done
}

in_host() { # joins every namespace of the host and its cgroup
    local p cg
    p=$(pid1) || die "the host is off"
    cg=$(cgroup)
    mkdir -p "$cg/exec"
    (
        echo 0 > "$cg/exec/cgroup.procs"
        exec nsenter -t "$p" --mount --uts --ipc --net --pid --cgroup --root --wd \
            env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root LANG=C.UTF-8 setpriv --bounding-set "$nocaps" "$@"
    )
}

running() { [ "$(in_host systemctl is-system-running 2>/dev/null)" = running ]; }
empty() { grep -q 'populated 0' "$1/cgroup.events"; }

main() { # a function: bash has read all of the file before anything runs
case $verb in
up)
    root=$("$here/root.sh")
    mkdir -p "$h/upper/etc" "$h/work" "$h/root"
    tr -d - < /proc/sys/kernel/random/uuid > "$h/upper/etc/machine-id"
    echo "$1" > "$h/upper/etc/hostname"
    printf '127.0.0.1 localhost %s\n' "$1" > "$h/upper/etc/hosts"
    cat /proc/sys/kernel/random/uuid > "$h/boot_id"
    cg=$(cgroup); mkdir -p "$cg"
    setsid unshare --mount --uts --ipc --pid --net --fork --kill-child --propagation private \
        bash "$here/init.sh" "$h" "$cg" "$root" "$nocaps" < /dev/null > "$h/console.log" 2>&1 &
    waitfor 15 pid1 || die "no systemd after 15 s: $(cat "$h/console.log")"
    ;;
wait) waitfor 60 running || die "not running after 60 s: $(in_host systemctl --failed --no-pager 2>&1)" ;;
exec)
    if [ $# = 1 ]; then set -- sh -c "$1"; fi
    in_host "$@"
    ;;
put)
    p=$(pid1) || die "the host is off"
    mkdir -p "$(dirname "/proc/$p/root/$2")"; install -m "${3:-755}" "$1" "/proc/$p/root/$2"
    ;;
journal) in_host journalctl --no-pager -o short-monotonic "$@" ;;
down)
    cg=$(cgroup)
    if [ -d "$cg" ]; then
        echo 1 > "$cg/cgroup.kill"
        waitfor 20 empty "$cg" || die "processes of the host survive"
        find "$cg" -depth -type d -exec rmdir {} +
    fi
    [ ! -d "$h/cgroup" ] || { umount "$h/cgroup"; rmdir "$h/cgroup"; }
    ;;
*) die "unknown command $verb" ;;
esac
}
main "$@"; exit
