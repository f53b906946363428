#!/bin/bash
# Installs the Debian packages that building and running clusters without a
# registry takes, if they are missing. Needs root.
. "$(dirname "$0")/settings.sh"
missing=()
for package in docker.io debootstrap busybox-static iptables procps; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0
((EUID == 0)) || fail "install ${missing[*]}, or run this as root"
say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Installed packages must not start an engine that nobody asked for.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
# Half an installation would be worse than an interrupt that waits.
trap '' INT TERM
{ apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$KIND_CACHE/log/apt.log" 2>&1 ||
  fail "the packages ${missing[*]} cannot be installed: see $KIND_CACHE/log/apt.log"
