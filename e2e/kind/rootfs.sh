#!/bin/bash
# rootfs.sh node|workload: makes a root file system from Debian packages in the
# cache, once. Needs root.
. "$(dirname "$0")/settings.sh"
kind=${1:?node or workload}
declare -A packages=(
  [node]="systemd systemd-sysv dbus iptables nftables iproute2 ethtool conntrack kmod procps jq ca-certificates runc containerd containernetworking-plugins xfsprogs"
  [workload]="redis-server redis-tools busybox-static"
)
target=$KIND_CACHE/rootfs-$kind
want=$(hash "$here/rootfs.sh")
[[ $(cat "$target/.done" 2>/dev/null) != "$want" ]] || exit 0
((EUID == 0)) || fail "making a node image from Debian packages takes root: run this as root, or name a NODE_IMAGE"
"$here/packages.sh"
say "installing Debian packages for the $kind image"
rm -rf "$target"
# The release whose systemd and containerd also serve cgroup v1.
debootstrap --variant=minbase --include="${packages[$kind]// /,}" bookworm "$target" >"$KIND_CACHE/log/debootstrap-$kind.log" ||
  fail "debootstrap failed: see $KIND_CACHE/log/debootstrap-$kind.log"
rm -rf "$target"/var/cache/apt/* "$target"/var/lib/apt/lists/* "$target"/usr/share/{doc,man,locale,info}
echo "$want" >"$target/.done"
