#!/bin/bash
# install.sh: brings Liqo up in the clusters home and west, which run with Lodestone, and has its
# virtual kubelet, in place of Lodestone's, register the node west that stands for cluster west.
. "$(dirname "$0")/../kind/settings.sh"
export PATH=$root/bin:$KIND_CACHE/bin:$PATH
liqo=$root/e2e/liqo
home() { kubectl --context kind-home "$@"; }
west() { kubectl --context kind-west "$@"; }

if home get node west -l liqo.io/type=virtual-node -o name 2>/dev/null | grep -q .; then
  say "Liqo runs already"
  exit 0
fi
built=$(cd "$root" && go run ./e2e/cmd/build liqo) || fail "Liqo does not build: see above"
version=$(cd "$liqo" && go list -m -f '{{.Version}}' github.com/liqotech/liqo)
chart=$(cd "$liqo" && go list -m -f '{{.Dir}}' github.com/liqotech/liqo)/deployments/liqo
say "bringing up Liqo $version"
# As Liqo's own: programs in /usr/bin, and a /tmp that all may write to.
files=$KIND_CACHE/liqo
for program in liqo-controller-manager webhook crd-replicator virtual-kubelet; do
  image=docker.io/lodestone-e2e/$program:$version
  rm -rf "$files"
  mkdir -p "$files/usr/bin" "$files/tmp"
  chmod 1777 "$files/tmp"
  cp "$built/$program" "$files/usr/bin/"
  tar -C "$files" -c . | docker import -c 'USER 65532:65532' - "$image" >/dev/null
  for cluster in "${clusters[@]}"; do kind load docker-image -q --name "$cluster" "$image"; done
done
rm -rf "$files"

kubectl lodestone unpeer west --context kind-home --remote-context kind-west --yes >"$KIND_CACHE/log/unpeer.log" 2>&1 || {
  cat "$KIND_CACHE/log/unpeer.log" >&2
  fail "Lodestone's own node west could not be removed: see above"
}
# Lodestone and Liqo know home by the same ID.
id=$(home get namespace kube-system -o jsonpath='{.metadata.uid}')
for cluster in "${clusters[@]}"; do
  named=${id%%-*}
  [[ $cluster == home ]] || named=$cluster
  helm --kube-context "kind-$cluster" upgrade --install liqo "$chart" -n liqo --create-namespace -f "$liqo/values.yaml" --set "tag=$version" \
    --set "discovery.config.clusterID=$named" --set "apiServer.address=https://$(address "$cluster-control-plane"):6443" \
    --set "ipam.podCIDR=$("$cluster" get node "$cluster-control-plane" -o jsonpath='{.spec.podCIDR}')" --set ipam.serviceCIDR=10.96.0.0/16 \
    --wait --timeout 3m >"$KIND_CACHE/log/liqo-$cluster.log" 2>&1 || {
    cat "$KIND_CACHE/log/liqo-$cluster.log" >&2
    "$cluster" get pods -n liqo -o wide >&2
    fail "Liqo does not run in $cluster: see above"
  }
done
"$built/liqoctl" peer --context kind-home --remote-context kind-west --networking-disabled --timeout 3m >"$KIND_CACHE/log/liqo-peer.log" 2>&1 || {
  cat "$KIND_CACHE/log/liqo-peer.log" >&2
  fail "Liqo could not peer home and west: see above"
}
home wait --for=create node/west --timeout=60s >/dev/null
home label node west lodestone.dev/cluster=west >/dev/null
home wait --for=condition=Ready node/west --timeout=60s >/dev/null || fail "Liqo's node west is not ready"

west apply -f "$root/deploy/examples/liqo-namespaces.yaml" >/dev/null
"$liqo/peer.sh" SameName
say "Liqo's node west stands for cluster west"
