#!/bin/bash
# root.sh   builds the Debian root of the hosts with a real systemd once, and prints its folder.
# It lies below ${XDG_CACHE_HOME:-~/.cache}/hamgr, is named by its suite and packages, and is never
# written again: each host lays a layer of its own over it. Mirrors and keys are this machine's apt's.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hamgr
suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
pkgs="systemd systemd-sysv dbus iproute2 procps libcap2-bin util-linux e2fsprogs"
root=$cache/root-$suite-$(echo "1 $suite $pkgs" | sha256sum | cut -c1-12)
mkdir -p "$cache"
exec 9> "$cache/lock"; flock 9
[ ! -e "$root.ok" ] || { echo "$root"; exit 0; }
src=/etc/apt/sources.list.d/debian.sources
[ -s "$src" ] || src=/etc/apt/sources.list
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mmdebstrap --quiet --mode=root --variant=minbase --include="${pkgs// /,}" "$suite" "$tmp/root" "$src" >&2
r=$tmp/root
rm -rf "$r"/var/cache/apt/* "$r"/var/lib/apt/lists/*
mkdir -p "$r/var/log/journal"
: > "$r/etc/machine-id"
# Nothing by itself in the background, nothing that looks for hardware or consoles.
for u in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
         e2scrub_reap.service fstrim.timer console-getty.service getty.target \
         systemd-timesyncd.service systemd-networkd.service systemd-resolved.service \
         systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket \
         systemd-udevd-control.socket systemd-firstboot.service; do
    ln -sfn /dev/null "$r/etc/systemd/system/$u"
done
rm -rf "$root"
mv "$tmp/root" "$root"
touch "$root.ok"
echo "$root"
