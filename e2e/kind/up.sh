#!/bin/bash
# Brings up the clusters home and west side by side, unless they run already, and
# installs Lodestone from this working tree in them. With LODESTONE_INSTALL they are as
# kubeadm makes clusters, and have images alone: tests install Lodestone. With
# LODESTONE_FABRIC=1 the pods of both have addresses of one range, and home has a second node, where only pods that ask for it run. With
# LODESTONE_THREE=1 there is a third cluster, east, and the pods of all have addresses of one range. With
# LODESTONE_DUAL=1 nodes, pods and Services have addresses of IPv6, too, by which nothing but the fabric leads to pods of the other cluster.
. "$(dirname "$0")/settings.sh"
exec 8>"$KIND_CACHE/clusters.lock"
flock 8
"$here/engine.sh" start 8>&-
. "$here/settings.sh" # its socket, if it was just made
export PATH=$KIND_CACHE/bin:$PATH

family=ipv4
[[ -z ${LODESTONE_DUAL-} ]] || family=dual

# choose_image <cluster>: sets image, and built unless others made it.
choose_image() {
  local version
  image=$NODE_IMAGE built=
  [[ -z $image ]] || return 0
  version=$(version "$1")
  image=kindest/node:$version
  if ! docker image inspect "$image" >/dev/null 2>&1 && ! timeout 600 docker pull -q "$image" >"$KIND_CACHE/log/pull.log" 2>&1; then
    say "no registry gives $image: building a node image here"
    image=lodestone-e2e/node:$version built=yes
    "$here/node-image.sh" "$1" "$image" 8>&-
  fi
}

# config <cluster> <number>: kind's configuration of that cluster.
config() {
  cat <<Y
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
name: $1
networking:
  ipFamily: $family
  podSubnet: 10.1$2.0.0/16${LODESTONE_DUAL:+,fd00:10:$2::/56}
  serviceSubnet: 10.96.0.0/16${LODESTONE_DUAL:+,fd00:96::/112}
Y
  # Debian has the CNI plugins, but not kind's; and nft, which is newer, in the image of kube-proxy.
  [[ -z $built ]] || cat <<Y
  disableDefaultCNI: true
  kubeProxyMode: nftables
Y
  cat <<Y
nodes:
- role: control-plane
  image: $image
  extraMounts:
  - {hostPath: $KIND_CACHE/shared, containerPath: $shared}
Y
  [[ -n ${LODESTONE_INSTALL-} ]] || cat <<Y
  - {hostPath: $root/deploy/examples, containerPath: $examples, readOnly: true}
Y
  cat <<Y
  labels: {topology.kubernetes.io/zone: $1}
Y
  [[ $1 != home || -z ${LODESTONE_FABRIC-} ]] || cat <<Y
- role: worker
  image: $image
Y
  cat <<Y
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  failCgroupV1: false
Y
  # The extender is in home.
  local arguments="[{name: config, value: $examples/kube-scheduler-configuration.yaml}]"
  # kind gives kubeadm before 1.36 a configuration of v1beta3, which has a map there.
  [[ ! $(version "$1") < v1.36 ]] || arguments="{config: $examples/kube-scheduler-configuration.yaml}"
  [[ $1 != home || -n ${LODESTONE_INSTALL-} ]] || cat <<Y
- |
  kind: ClusterConfiguration
  scheduler:
    extraArgs: $arguments
    extraVolumes: [{name: lodestone, hostPath: $examples, mountPath: $examples, readOnly: true, pathType: Directory}]
Y
}

# network <cluster>: a bridge on each node for its pods, and routes to those of the others.
network() {
  local node other ranges everywhere='{"dst": "0.0.0.0/0"}'
  [[ -z ${LODESTONE_DUAL-} ]] || everywhere+=', {"dst": "::/0"}'
  for node in $(kind get nodes --name "$1"); do
    pod_range "$1" "$node" >/dev/null # it has them
    # shellcheck disable=SC2046 # a word each
    ranges=$(printf ', [{"subnet": "%s"}]' $(kubectl --context "kind-$1" get node "$node" -o jsonpath='{.spec.podCIDRs[*]}'))
    docker exec -i "$node" sh -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-bridge.conflist' <<J
{"cniVersion": "1.0.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam":
    {"type": "host-local", "ranges": [${ranges#, }], "routes": [$everywhere]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
    for other in $(kind get nodes --name "$1"); do
      [[ $other == "$node" ]] || docker exec "$node" ip route replace "$(pod_range "$1" "$other")" via "$(address "$other")"
    done
  done
}

# create <cluster> <number>
create() {
  local log=$KIND_CACHE/log/create-$1.log
  config "$1" "$2" >"$KIND_CACHE/$1.yaml"
  kind create cluster --config "$KIND_CACHE/$1.yaml" --retain >"$log" 2>&1 || {
    grep -E '^(ERROR|Command Output)' "$log" >&2 || tail -n 5 "$log" >&2
    kind export logs --name "$1" "$root/bin/results/e2e-logs/create-$1" >/dev/null 2>&1 || true
    fail "kind could not create cluster $1: see $log and bin/results/e2e-logs/create-$1"
  }
  local kubectl=(kubectl --context "kind-$1")
  [[ -z $built ]] || network "$1"
  if "${kubectl[@]}" get node "$1-worker" >/dev/null 2>&1; then
    "${kubectl[@]}" taint node "$1-control-plane" node-role.kubernetes.io/control-plane- >>"$log"
    "${kubectl[@]}" taint node "$1-worker" e2e=second:NoSchedule >>"$log"
  fi
  if ! { "${kubectl[@]}" wait --for=condition=Ready "node/$1-control-plane" --timeout=120s &&
    "${kubectl[@]}" -n kube-system rollout status deploy/coredns --timeout=120s &&
    "${kubectl[@]}" -n local-path-storage rollout status deploy/local-path-provisioner --timeout=120s; } >>"$log" 2>&1; then
    "${kubectl[@]}" get nodes,pods -A -o wide >&2
    fail "cluster $1 does not become ready: see above"
  fi
  say "cluster $1 is up"
}

# healthy <cluster>: it runs and answers, and has what tests need.
healthy() {
  mounts "$1" "$shared" && [[ $(docker inspect -f '{{.State.Running}} {{.State.Paused}}' "$1-control-plane" 2>/dev/null) == "true false" ]] &&
    kubectl --context "kind-$1" get --raw /readyz >/dev/null 2>&1
}

"$here/programs.sh" "$KIND_CACHE/bin" kind 8>&-
LODESTONE_KUBERNETES=$(minor home) "$here/programs.sh" "$KIND_CACHE/bin" node 8>&-
docker network inspect kind >/dev/null 2>&1 ||
  docker network create --subnet "$NODE_SUBNET" ${LODESTONE_DUAL:+--ipv6 --subnet fd00:172:30::/64} kind >/dev/null
mkdir -p "$KIND_CACHE/shared"
if ours home; then
  bare=yes
  ! mounts home "$examples" || bare=
  [[ $bare == "${LODESTONE_INSTALL:+yes}" ]] && grep -q "podSubnet: 10.1${one_range:-2}\." "$KIND_CACHE/west.yaml" &&
    grep -q "ipFamily: $family" "$KIND_CACHE/west.yaml" &&
    [[ $(grep -c "role: worker" "$KIND_CACHE/home.yaml") == "${LODESTONE_FABRIC:-0}" ]] && { [[ -n ${LODESTONE_THREE-} ]] || ! mounts east "$shared"; } ||
    fail "the clusters that run are not those that this suite needs: run make e2e-down first"
fi
number=0 creating=()
for cluster in "${clusters[@]}"; do
  number=$((number + 1))
  if ours "$cluster"; then
    if healthy "$cluster"; then
      [[ -n $NODE_IMAGE || $(docker exec "$cluster-control-plane" cat /kind/version) == "$(version "$cluster")" ]] ||
        fail "the cluster $cluster that runs has another Kubernetes than $(version "$cluster"): run make e2e-down first"
      say "cluster $cluster runs already"
      continue
    fi
    kind delete cluster -q --name "$cluster"
  fi
  choose_image "$cluster"
  create "$cluster" "${one_range:-$number}" 8>&- &
  creating+=("$!")
done
failed=
for pid in "${creating[@]}"; do wait "$pid" || failed=yes; done
[[ -z $failed ]] || exit 1
"$here/install.sh" 8>&-
