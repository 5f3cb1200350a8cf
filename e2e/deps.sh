#!/bin/bash
# deps.sh [systemd]   installs what the tests need beside Go, where it can (Debian and its kin, as root), and says
# what they need where it cannot. With everything there it changes nothing and needs no network.
# `systemd` adds what the tests with a real systemd need.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

# The command that must be there, the Debian package that has it, what it is for.
need='gcc:gcc:the race detector
mkfs.ext4:e2fsprogs:the filesystem resource, on a disk image
mount:mount:the filesystem resource
losetup:mount:the filesystem resource, on a disk image
mkfs.xfs:xfsprogs:the same
mkfs.btrfs:btrfs-progs:the same
debugfs:e2fsprogs:the same, damaged
swapon:mount:the same, used as swap
lvm:lvm2:the lvm resource
dmsetup:dmsetup:the same
linux.uml:user-mode-linux:kernels with device-mapper and NFS for both
rpc.nfsd:nfs-kernel-server:an NFS server for the filesystem resource
mount.nfs:nfs-common:the filesystem resource, by NFS
rpcbind:rpcbind:the same
ipmi_sim:openipmi:a BMC for the ipmi agent
ipmitool:ipmitool:what fence_ipmilan runs, for the exec agent
python3:python3-pyghmi:another BMC for the ipmi agent
snmpd:snmpd:a PDU for the snmp agent
snmpset:snmp:what fence_apc_snmp runs, for the exec agent
perl:perl-base:the tables of that PDU
fence_ipmilan:fence-agents:the agents that the exec agent runs
ip:iproute2:agents that the kind ocf runs
arping:iputils-arping:the same
fuser:psmisc:the same
modprobe:kmod:the same
rsync:rsync:the same
/usr/lib/ocf/resource.d/heartbeat/Dummy:resource-agents:the same
ps:procps:the same'
if [ "${1:-}" = systemd ]; then
    need="$need
mmdebstrap:mmdebstrap:the root of the hosts that run hamgr.service
unshare:util-linux:the namespaces of those hosts
nsenter:util-linux:the namespaces of those hosts
setpriv:util-linux:the namespaces of those hosts
ip:iproute2:the network of those hosts"
fi

missing=() packages=()
while IFS=: read -r command package what; do
    case $package in
        python3-pyghmi) /usr/bin/python3 -c 'import pyghmi.ipmi.bmc' 2> /dev/null && continue ;;
        *) command -v "$command" > /dev/null && continue ;;
    esac
    missing+=("  $command (Debian package $package): $what"); packages+=("$package")
done <<< "$need"
[ ${#missing[@]} = 0 ] && exit 0

echo "missing for the tests:" >&2
printf '%s\n' "${missing[@]}" >&2
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "not root on a Debian: please install them, for example: sudo apt-get install ${packages[*]}" >&2
    exit 1
fi
echo "installing: ${packages[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
