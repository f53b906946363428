#!/bin/bash
# peer.sh <strategy>: peers Lodestone of home with west, without a node of its own and with no
# namespaces there but those that Liqo makes; anew, if it is peered. The strategy is SameName or Suffixed.
. "$(dirname "$0")/../kind/settings.sh"
export PATH=$root/bin:$KIND_CACHE/bin:$PATH
lodestone() {
  kubectl lodestone "$@" --context kind-home --remote-context kind-west >"$KIND_CACHE/log/$1.log" 2>&1 || {
    cat "$KIND_CACHE/log/$1.log" >&2
    fail "kubectl lodestone $1 failed: see above"
  }
}

! kubectl --context kind-home get remotecluster west >/dev/null 2>&1 || lodestone unpeer west --yes
lodestone peer --name west --virtual-node Disabled --namespace-strategy "$1" --namespaces '*' \
  --remote-server "https://$(address west-control-plane):6443" --home-server "https://$(address home-control-plane):6443" \
  --pod-network Routed --pod-cidrs "$(pod_range west west-control-plane)"
id=$(kubectl --context kind-home get namespace kube-system -o jsonpath='{.metadata.uid}')
kubectl --context kind-west patch homecluster "${id%%-*}" --type=merge -p '{"spec": {"namespaces": {"maximum": 0}}}' >/dev/null
