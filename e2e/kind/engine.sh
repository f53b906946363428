#!/bin/bash
# engine.sh start|stop: a container engine for the clusters. One that runs already
# and that the user may use is used and left alone. Otherwise, as root on Debian,
# one is started that keeps all its data in the cache, listens on a socket of its
# own and makes no docker0; when it stops, the machine's settings are as before.
. "$(dirname "$0")/settings.sh"
state=$KIND_CACHE/engine

# What dockerd, the kubelets and launch change for the whole machine.
settings=(net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv6.conf.default.forwarding vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops
  kernel.keys.root_maxkeys kernel.keys.root_maxbytes net.netfilter.nf_conntrack_max fs.inotify.max_user_instances)

# engine_pid prints the process that is, or was, the engine that start started.
engine_pid() { grep -xE '[0-9]+' "$state/pid" 2>/dev/null; }

# command_line <pid>: empty when it has ended, also if nobody waits for it.
command_line() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null || true; }

# alive <pid>: that engine still runs; by now the number may be a stranger's.
alive() { [[ -n $1 && " $(command_line "$1")" == *" --pidfile $state/pid "* ]]; }

# another: an engine runs on this machine, whoever started it.
another() {
  local pid
  for pid in $(pgrep -x dockerd); do
    [[ -z $(command_line "$pid") ]] || return 0
  done
  return 1
}

start() {
  docker info >/dev/null 2>&1 && return
  local instead="start Docker so that this user may use it, or run this as root on Debian"
  ((EUID == 0)) || fail "no container engine answers: $instead"
  command -v apt-get >/dev/null || fail "no container engine answers, and this is not Debian: $instead"
  "$here/packages.sh"
  mkdir -p "$state"
  # After a crash what was written down then is still what to go back to.
  if [[ ! -s $state/before ]]; then
    sysctl -e "${settings[@]}" 2>/dev/null >"$state/before"
    iptables -S FORWARD 2>/dev/null | grep '^-P' >"$state/forward" || echo "-P FORWARD ACCEPT" >"$state/forward"
  fi
  alive "$(engine_pid)" || launch
  export DOCKER_HOST=unix://$engine_socket
  local try
  for try in $(seq 60); do
    docker info >/dev/null 2>&1 && return
    sleep 0.5
  done
  tail -n 20 "$KIND_CACHE/log/dockerd.log" >&2
  fail "the container engine did not start within 30 s after $try tries: see above"
}

# launch starts an engine in the background.
launch() {
  local extra=()
  # --privileged asks for every capability; runc fails over one that this machine
  # cannot give.
  local bounding=0x$(awk '/CapBnd/ {print $2}' /proc/self/status)
  ((bounding >> 24 & 1)) || extra=(--add-runtime "capped=$here/runc-capped" --default-runtime capped)
  # All of root's programs share these: those of two nodes, and of control planes beside them.
  (($(sysctl -n fs.inotify.max_user_instances) >= 1024)) || sysctl -q -w fs.inotify.max_user_instances=1024 || true
  rm -f "$engine_socket" "$state/pid"
  setsid nohup nice -n 5 dockerd --host "unix://$engine_socket" --bridge none --data-root "$state/data" --exec-root "$state/run" \
    --pidfile "$state/pid" "${extra[@]}" >"$KIND_CACHE/log/dockerd.log" 2>&1 </dev/null &
}

# stop ends an engine that start started, and nothing else.
stop() {
  [[ -s $state/before ]] || return 0
  local pid
  pid=$(engine_pid) || true
  if alive "$pid"; then
    timeout 10 docker -H "unix://$engine_socket" network rm kind >/dev/null 2>&1 || true
    end "$pid"
  fi
  rm -f "$engine_socket" "$state/pid"
  # Another engine forwards too, by rules with the same names.
  if another; then
    sed -i '/forward/d' "$state/before"
  else
    forget_rules
  fi
  sysctl -q -e -p "$state/before" 2>/dev/null || true
  rm -f "$state/before" "$state/forward"
}

# end <pid>: asks the engine to end, for 30 s.
end() {
  kill "$1" 2>/dev/null || true
  for _ in $(seq 150); do
    alive "$1" || return 0
    sleep 0.2
  done
  say "the container engine, process $1, does not end within 30 s: killing it"
  kill -KILL "$1" 2>/dev/null || true
  for _ in $(seq 25); do
    alive "$1" || return 0
    sleep 0.2
  done
  fail "the container engine, process $1, cannot be killed"
}

# forget_rules removes the chains of an engine that has ended, and what jumps there.
forget_rules() {
  local table rule
  for table in filter nat; do
    iptables -t "$table" -S 2>/dev/null | grep -E '^-A (FORWARD|PREROUTING|OUTPUT|POSTROUTING) .*(DOCKER|docker0|br-[0-9a-f]{12})' |
      while read -r rule; do
        eval "iptables -t $table -D ${rule#-A }"
      done || true
    for step in -F -X; do
      iptables -t "$table" -S 2>/dev/null | awk '$1 == "-N" && $2 ~ /^DOCKER/ {print $2}' |
        while read -r rule; do iptables -t "$table" "$step" "$rule"; done || true
    done
  done
  # shellcheck disable=SC2046 # the words of a rule
  [[ ! -s $state/forward ]] || iptables $(cat "$state/forward")
}

"${1:?engine.sh start or stop}"
