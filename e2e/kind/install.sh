#!/bin/bash
# Builds the programs and images of this working tree, loads them into the clusters
# and installs Lodestone there as a user would. Run again, it brings what changed. With
# LODESTONE_INSTALL it ends once the images are there.
. "$(dirname "$0")/settings.sh"
export PATH=$root/bin:$KIND_CACHE/bin:$PATH
home() { kubectl --context kind-home "$@"; }
west() { kubectl --context kind-west "$@"; }
east() { kubectl --context kind-east "$@"; }
remotes=("${clusters[@]:1}")

# image <program>: makes the image of a program, unless it is there.
image() {
  local name=lodestone-$1:dev want
  want=$(hash "$root/bin/lodestone-$1")
  [[ $(docker image inspect -f '{{index .Config.Labels "program"}}' "$name" 2>/dev/null) != "$want" ]] || return 0
  tar -C "$root/bin" -c "lodestone-$1" | docker import -c 'USER 65532:65532' -c "LABEL program=$want" \
    -c "ENTRYPOINT [\"/lodestone-$1\"]" - "$name" >/dev/null
}

# load <cluster> <image>: into its node, unless it is there.
load() {
  local marker=$KIND_CACHE/loaded/$1/${2//[^a-z0-9]/-} id
  id=$(docker inspect -f '{{.Id}}' "$1-control-plane")/$(docker image inspect -f '{{.Id}}' "$2")
  [[ $(cat "$marker" 2>/dev/null) != "$id" ]] || return 0
  kind load docker-image -q --name "$1" "$2"
  mkdir -p "${marker%/*}"
  echo "$id" >"$marker"
  loaded[$1]=yes
}
declare -A loaded

# settle <cluster> <namespace>: runs the images that were loaded last.
settle() {
  [[ -z ${loaded[$1]-} ]] || "$1" -n "$2" rollout restart deployment >/dev/null
  local deployment
  for deployment in $("$1" -n "$2" get deployments -o name); do
    "$1" -n "$2" rollout status "$deployment" --timeout=180s >/dev/null || {
      "$1" -n "$2" get pods -o wide >&2
      fail "Lodestone does not run in $1: see above"
    }
  done
}

# install <cluster> <overlay> <component>: as docs/services.md says, with the definitions and the names that the component needs.
install() {
  local overlay=$KIND_CACHE/overlay-$1 deploy corefile
  "$1" apply -f "$(cd "$root" && go list -m -f '{{.Dir}}' sigs.k8s.io/mcs-api)/config/crd" >/dev/null
  mkdir -p "$overlay"
  deploy=$(realpath --relative-to "$overlay" "$root/deploy")
  printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents: [%s]\n' \
    "$deploy/overlays/$2" "$deploy/components/$3" >"$overlay/kustomization.yaml"
  "$1" apply -k "$overlay" >"$KIND_CACHE/log/apply-$1.log"
  corefile=$("$1" -n kube-system get configmap coredns -o jsonpath='{.data.Corefile}')
  [[ $corefile != *clusterset* ]] || return 0
  corefile=$(awk 'NR == FNR { if (/^rewrite /) lines = lines $0 "\n"; next } /^ *kubernetes / { printf "%s", lines } { print }' \
    "$root/docs/services.md" <(echo "$corefile"))
  "$1" -n kube-system create configmap coredns --from-literal=Corefile="$corefile" --dry-run=client -o yaml |
    "$1" -n kube-system replace -f - >/dev/null
  "$1" -n kube-system rollout restart deploy/coredns >/dev/null
}

# What e2e/liqo/install.sh has put in the place of Lodestone's node stays.
liqo=
if home get namespace liqo >/dev/null 2>&1; then
  [[ -n ${LODESTONE_LIQO-} ]] || fail "the clusters that run are those of make e2e-liqo: run make e2e-down first"
  liqo=yes
fi

say "building the programs of this working tree"
make -s -C "$root" build >"$KIND_CACHE/log/build.log" || fail "the programs do not build: see above"
for program in provisioner extender virtualnode; do
  image "$program"
  load home "lodestone-$program:dev"
done
image remote-agent
for cluster in "${remotes[@]}"; do load "$cluster" lodestone-remote-agent:dev; done
if [[ -n ${LODESTONE_INSTALL-} ]]; then
  "$here/workload-image.sh"
  "$here/mover-image.sh"
  for cluster in "${clusters[@]}"; do
    load "$cluster" "$workload_image"
    load "$cluster" lodestone-mover:dev
  done
  exit 0
fi
image network
for cluster in "${clusters[@]}"; do load "$cluster" lodestone-network:dev; done
"$here/workload-image.sh"
"$here/mover-image.sh"
images=("$workload_image" lodestone-mover:dev)
# Databases are not among the tests that these run.
if [[ -z ${E2E_SHORT-}${LODESTONE_LIQO-}${LODESTONE_MCS-}${one_range}${LODESTONE_DUAL-} ]]; then
  "$here/galera-image.sh"
  "$here/patroni-image.sh"
  images+=("$galera_image" "$patroni_image")
fi
for cluster in "${clusters[@]}"; do
  for image in "${images[@]}"; do load "$cluster" "$image"; done
done

# The test of three clusters has no volumes.
if [[ -z ${LODESTONE_THREE-} ]]; then
  directories=$(cd "$root" && go run ./e2e/cmd/build disk sidecars) || fail "the CSI driver for tests and the sidecars do not build: see above"
  rm -rf "$KIND_CACHE/storage"
  mkdir -p "$KIND_CACHE/storage"
  for directory in $directories; do cp -r "$directory/." "$KIND_CACHE/storage/"; done
  # Home has less room than west.
  "$here/storage.sh" home $((8 << 30)) &
  storing=$!
  "$here/storage.sh" west $((16 << 30))
  wait "$storing"
fi

say "installing"
# Before Kubernetes 1.36 a webhook does the work of policies.
overlay=kind
home get --raw /apis/admissionregistration.k8s.io/v1 | grep -q mutatingadmissionpolicies || overlay=kind-webhook
install home "$overlay" services
for cluster in "${remotes[@]}"; do install "$cluster" kind-remote services-remote; done
settle home lodestone-system &
installing=$!
for cluster in "${remotes[@]}"; do settle "$cluster" lodestone-remote; done
wait "$installing"
for cluster in "${clusters[@]}"; do
  [[ -z ${loaded[$cluster]-} ]] || "$cluster" -n lodestone-network rollout restart daemonset,deployment >/dev/null
  for workload in daemonset deployment; do
    "$cluster" -n lodestone-network rollout status "$workload" --timeout=120s >/dev/null || {
      "$cluster" -n lodestone-network get pods -o wide >&2
      fail "the network program does not run in $cluster: see above"
    }
  done
done

# The nodes route the pods of the other cluster to its node, where these have addresses of their own.
network=(--pod-network Isolated)
[[ -n $one_range ]] || for pair in "home west" "west home"; do
  read -r from to <<<"$pair"
  docker exec "$from-control-plane" ip route replace "$(pod_range "$to" "$to-control-plane")" via "$(address "$to-control-plane")"
  network=(--pod-network Routed --pod-cidrs "$(pod_range west west-control-plane)")
done
[[ -z $liqo ]] || exit 0
kubectl lodestone peer --context kind-home --remote-context kind-west --name west \
  --namespaces '*' --remote-server "https://$(address west-control-plane):6443" \
  --home-server "https://$(address home-control-plane):6443" "${network[@]}" >"$KIND_CACHE/log/peer.log" 2>&1 || {
  cat "$KIND_CACHE/log/peer.log" >&2
  fail "home and west could not be peered: see above"
}
home wait --for=condition=Ready node/west --timeout=120s >/dev/null || fail "home has no virtual node that stands for west and is ready"
say "Lodestone runs in home, and the node west stands for cluster west"
