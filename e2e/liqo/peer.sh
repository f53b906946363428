#!/bin/bash
# peer.sh <strategy>: peers Lodestone of home with west, without a node of its own and with no
# namespaces there but those that Liqo makes; anew, if it is peered. The strategy is SameName or Suffixed.
. "$(dirname "$0")/../kind/settings.sh"
export PATH=$root/bin:$KIND_CACHE/bin:$PATH
address() { docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$1-control-plane"; }
lodestone() {
  kubectl lodestone "$@" --context kind-home --remote-context kind-west >"$KIND_CACHE/log/$1.log" 2>&1 || {
    cat "$KIND_CACHE/log/$1.log" >&2
    fail "kubectl lodestone $1 failed: see above"
  }
}

! kubectl --context kind-home get remotecluster west >/dev/null 2>&1 || lodestone unpeer west --yes
west=$(kubectl --context kind-west get node west-control-plane -o jsonpath='{.spec.podCIDR}')
lodestone peer --name west --virtual-node Disabled --namespace-strategy "$1" --namespaces '*' --remote-server "https://$(address west):6443" \
  --home-server "https://$(address home):6443" --pod-network Routed --pod-cidrs "$west"
id=$(kubectl --context kind-home get namespace kube-system -o jsonpath='{.metadata.uid}')
kubectl --context kind-west patch homecluster "${id%%-*}" --type=merge -p '{"spec": {"namespaces": {"maximum": 0}}}' >/dev/null
