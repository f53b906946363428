# What the scripts of this directory share. Each setting can be given from outside.
# shellcheck shell=bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
programs=$root/e2e/programs

: "${KIND_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/lodestone/kind}"
# The Kubernetes of the clusters by its minor version, or home's and west's, as 1.36,1.34.
: "${LODESTONE_KUBERNETES:=}"
# The node image to use; empty: the stock one if a registry is reachable, else
# one that is built here.
: "${NODE_IMAGE:=}"
# The nodes' network, when it is made here.
: "${NODE_SUBNET:=172.30.0.0/24}"

# A pod image with busybox, Redis, PostgreSQL and restic. The local-path provisioner
# of a node image that is built here uses it too.
workload_image=docker.io/lodestone-e2e/workload:2
# That of deploy/examples/galera.yaml.
galera_image=docker.io/lodestone-e2e/galera:1
# That of deploy/examples/patroni.yaml.
patroni_image=docker.io/lodestone-e2e/patroni:1
debian_image=debian:bookworm-slim
local_path_image=docker.io/lodestone-e2e/local-path-provisioner:v0.0.30
clusters=(home west)
[[ -z ${LODESTONE_THREE-} ]] || clusters+=(east)
# Set: the pods of all clusters have addresses of one range, so that nothing but the network fabric joins them.
one_range=${LODESTONE_FABRIC:-${LODESTONE_THREE-}}
# Where both nodes have the same directory, in the stead of storage that two clusters share.
shared=/var/lib/lodestone-shared
# Where the nodes have deploy/examples, with the configuration of kube-scheduler.
examples=/etc/kubernetes/lodestone

# The same as elsewhere: what has been compiled there is not compiled again.
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" GOWORK=off
export KUBECONFIG=$KIND_CACHE/kubeconfig
# An engine that engine.sh started listens here, and nowhere else. After a crash the
# socket is still there, and nobody listens.
engine_socket=$KIND_CACHE/engine/docker.sock
if [[ -S $engine_socket ]] && timeout 10 docker -H "unix://$engine_socket" info >/dev/null 2>&1; then
  export DOCKER_HOST=unix://$engine_socket
elif [[ ${DOCKER_HOST-} == "unix://$engine_socket" ]]; then
  unset DOCKER_HOST
fi
mkdir -p "$KIND_CACHE/log"

# minor <cluster>: the minor version of its Kubernetes; none: that of e2e/programs/go.mod.
minor() {
  case $1 in
  home) echo "${LODESTONE_KUBERNETES%%,*}" ;;
  *) echo "${LODESTONE_KUBERNETES##*,}" ;;
  esac
}

# version <cluster>: the whole version.
version() {
  local minor file version
  minor=$(minor "$1") file=$programs/go.mod
  [[ ! -e $programs/kubernetes-$minor.mod ]] || file=$programs/kubernetes-$minor.mod
  version=$(sed -n 's,^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\)$,\1,p' "$file")
  [[ $version == v${minor:-1}.* ]] || fail "there is no Kubernetes $minor here: see which e2e/programs/kubernetes-*.mod there are"
  echo "$version"
}

say() { printf '[%s] %s\n' "$(date +%T)" "$*"; }
fail() {
  echo "$*" >&2
  exit 1
}

# hash <file...>: a short name for their content.
hash() { cat "$@" | sha256sum | cut -c1-12; }

# mounts <cluster> <path>: its node has a directory of this machine there.
mounts() {
  [[ " $(docker inspect -f '{{range .Mounts}}{{.Destination}} {{end}}' "$1-control-plane" 2>/dev/null)" == *" $2 "* ]]
}

# address <node>: that by which other nodes reach it.
address() { docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$1"; }

# pod_range <cluster> <node>: the range of the addresses of its pods, once it has one.
pod_range() {
  kubectl --context "kind-$1" wait --for=jsonpath='{.spec.podCIDR}' "node/$2" --timeout=60s >/dev/null
  kubectl --context "kind-$1" get node "$2" -o jsonpath='{.spec.podCIDR}'
}

# ours <cluster>: a kind cluster of that name is there, and the scripts here made it;
# fails if somebody else did.
ours() {
  docker inspect "$1-control-plane" >/dev/null 2>&1 || return 1
  mounts "$1" "$examples" || mounts "$1" "$shared" ||
    fail "there is a kind cluster $1 that is not of this suite: delete it (kind delete cluster --name $1), or use another engine (DOCKER_HOST)"
}
