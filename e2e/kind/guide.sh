#!/bin/bash
# Says how to use the clusters that run, and writes bin/kind.env, which a shell reads for that.
. "$(dirname "$0")/settings.sh"
export PATH=$KIND_CACHE/bin:$PATH
kubectl config use-context kind-home >/dev/null
# shellcheck disable=SC2016 # the shell that reads it knows PATH
printf 'export KUBECONFIG=%q PATH=%q:%q:$PATH\n' "$KUBECONFIG" "$root/bin" "$KIND_CACHE/bin" >"$root/bin/kind.env"
cat <<'E'
Two clusters run, home and west. To look around:

  . bin/kind.env
  kubectl lodestone status
  kubectl get nodes,remoteclusters
  kubectl --context kind-west get homeclusters

docs/guide.md goes on from here. make e2e runs the suite on them; make e2e-down deletes them.
E
