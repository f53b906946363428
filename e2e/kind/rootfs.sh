#!/bin/bash
# rootfs.sh node|workload: makes a root file system from Debian packages in the
# cache, once. Needs root.
. "$(dirname "$0")/settings.sh"
kind=${1:?node or workload}
declare -A packages=(
  [node]="systemd systemd-sysv dbus iptables nftables iproute2 ethtool conntrack kmod procps jq ca-certificates runc containerd containernetworking-plugins xfsprogs"
  [workload]="redis-server redis-tools busybox-static rsync restic"
)
# Only unpacked: installed, they would start a server.
declare -A unpacked=([workload]="postgresql-15 mariadb-server galera-4 patroni")
target=$KIND_CACHE/rootfs-$kind
exec 9>"$target.lock"
flock 9
want=$(hash "$here/rootfs.sh")
[[ $(cat "$target/.done" 2>/dev/null) != "$want" ]] || exit 0
((EUID == 0)) || fail "making a node image from Debian packages takes root: run this as root, or name a NODE_IMAGE"
"$here/packages.sh"
say "installing Debian packages for the $kind image"
rm -rf "$target"
# The release whose systemd and containerd also serve cgroup v1.
debootstrap --variant=minbase --include="${packages[$kind]// /,}" bookworm "$target" >"$KIND_CACHE/log/debootstrap-$kind.log" ||
  fail "debootstrap failed: see $KIND_CACHE/log/debootstrap-$kind.log"
if [[ -n ${unpacked[$kind]-} ]]; then
  {
    chroot "$target" apt-get update
    # shellcheck disable=SC2086 # one word a package
    chroot "$target" apt-get install -y --no-install-recommends --download-only ${unpacked[$kind]}
  } >"$KIND_CACHE/log/unpacked-$kind.log" 2>&1 || fail "the packages of ${unpacked[$kind]} cannot be fetched: see $KIND_CACHE/log/unpacked-$kind.log"
  for package in "$target"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -C "$target" --keep-directory-symlink -x
  done
  chroot "$target" ldconfig
fi
rm -rf "$target"/var/cache/apt/* "$target"/var/lib/apt/lists/* "$target"/usr/share/{doc,man,locale,info}
echo "$want" >"$target/.done"
