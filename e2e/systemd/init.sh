#!/bin/bash
# init.sh HOST CGROUP ROOT NOCAPS
# PID 1 of a test host until it becomes systemd: called in fresh namespaces, by host.sh and by e2e/hosts. HOST is the
# host's folder: upper/ is its disk, as a layer over ROOT; boot_id what its kernel calls this boot. If they are there:
# devices has the block devices that it sees ("shared0 7 12" is /dev/test/shared0), binds has files and folders of the
# machine's that it sees elsewhere ("/tmp/x /lab"). HOST/pid appears when its namespaces are as they will be.
set -euo pipefail
h=$1 cg=$2 root=$3 nocaps=$4
if [ "${5:-}" != in-cgroup ]; then
    # Into the host's cgroup first, then a cgroup namespace: what systemd sees as its root.
    echo 0 > "$cg/cgroup.procs"
    exec unshare --cgroup bash "$0" "$h" "$cg" "$root" "$nocaps" in-cgroup
fi
# Our PID as the machine sees it (this /proc is still the machine's), with its start time.
read -r p _ < /proc/self/stat
echo "$p $(cut -d' ' -f22 "/proc/$p/stat")" > "$h/pid.new"

m=$h/root
mount -t overlay -o "lowerdir=$root,upperdir=$h/upper,workdir=$h/work" overlay "$m"
mount -t proc -o nosuid,nodev,noexec proc "$m/proc"
# The kernel is the machine's own: its settings are read-only here, all but those of the host's own network.
mount --bind "$m/proc/sys" "$m/proc/sys"
mount --bind "$m/proc/sys/net" "$m/proc/sys/net"
mount -o remount,bind,ro "$m/proc/sys"
mount --bind "$h/boot_id" "$m/proc/sys/kernel/random/boot_id"
mount -o remount,bind,ro "$m/proc/sys/kernel/random/boot_id"
# The machine's own trigger must not be within reach of a daemon that resets its host.
if [ -e "$m/proc/sysrq-trigger" ]; then mount --bind /dev/null "$m/proc/sysrq-trigger"; fi
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$m/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$m/sys/fs/cgroup"
mount -t tmpfs -o mode=755,nosuid tmpfs "$m/dev"
for d in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name a b <<< "$d"; mknod -m 666 "$m/dev/$name" c "$a" "$b"
done
mkdir "$m/dev/pts" "$m/dev/shm"
if [ -e "$h/devices" ]; then
    mkdir "$m/dev/test"
    while read -r name a b; do mknod -m 660 "$m/dev/test/$name" b "$a" "$b"; done < "$h/devices"
fi
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$m/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/dev/shm"
ln -s pts/ptmx "$m/dev/ptmx"
ln -s /proc/self/fd "$m/dev/fd"
ln -s fd/0 "$m/dev/stdin"; ln -s fd/1 "$m/dev/stdout"; ln -s fd/2 "$m/dev/stderr"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$m/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/tmp"
if [ -e "$h/binds" ]; then
    while read -r from to; do [ ! -d "$from" ] || mkdir -p "$m$to"; mount --bind "$from" "$m$to"; done < "$h/binds"
fi
ip link set lo up
mv "$h/pid.new" "$h/pid"
cd "$m"
pivot_root . .
umount -l .
# As systemd does it by itself where it is not told that it runs in a container: units get their credentials, and what is
# mounted later, also in mount namespaces of their own.
mount --make-rshared /
hostname -F /etc/hostname
exec env -i container=hamgr-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set "$nocaps" /lib/systemd/systemd --system
