#!/bin/bash
# Installs the Debian packages that building and running clusters without a
# registry takes, if they are missing. Needs root.
. "$(dirname "$0")/settings.sh"
has() { command -v "$1" >/dev/null; }
present() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
missing=()
for package in debootstrap busybox-static iptables procps; do
  present "$package" || missing+=("$package")
done
# An engine of any other origin will do, and may not be replaced.
engine=
{ has dockerd && has docker; } || engine=docker.io
((${#missing[@]} > 0)) || [[ -n $engine ]] || exit 0
((EUID == 0)) || fail "install ${missing[*]} $engine, or run this as root"
say "installing ${missing[*]} $engine"
export DEBIAN_FRONTEND=noninteractive
log=$KIND_CACHE/log/apt.log
apt-get update >"$log" 2>&1 || fail "the lists of packages cannot be fetched: see $log"
if [[ -n $engine ]]; then
  present docker.io || missing+=(docker.io)
  # From Debian 13 on the command is in a package of its own.
  has docker || ! apt-cache show docker-cli >/dev/null 2>&1 || missing+=(docker-cli)
fi
# Installed packages must not start an engine that nobody asked for.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
# Half an installation would be worse than an interrupt that waits.
trap '' INT TERM
apt-get install -y --no-install-recommends --no-remove "${missing[@]}" >>"$log" 2>&1 ||
  fail "the packages ${missing[*]} cannot be installed: see $log"
{ has dockerd && has docker; } || fail "there is still no dockerd or no docker: install Docker, and see $log"
