#!/bin/bash
# PID 1 of the test host until it becomes systemd. Called by host.sh only.
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
# The kernel is the machine's own: its settings are read-only here.
mount --bind "$m/proc/sys" "$m/proc/sys"
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
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$m/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/dev/shm"
ln -s pts/ptmx "$m/dev/ptmx"
ln -s /proc/self/fd "$m/dev/fd"
ln -s fd/0 "$m/dev/stdin"; ln -s fd/1 "$m/dev/stdout"; ln -s fd/2 "$m/dev/stderr"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$m/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/tmp"
ip link set lo up
mv "$h/pid.new" "$h/pid"
cd "$m"
pivot_root . .
umount -l .
hostname -F /etc/hostname
exec env -i container=hamgr-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set "$nocaps" /lib/systemd/systemd --system
