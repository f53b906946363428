#!/bin/bash
# Says how to use the clusters that run.
. "$(dirname "$0")/settings.sh"
cat <<E
Two clusters run, home and west. To look around:

  export KUBECONFIG=$KUBECONFIG PATH=$root/bin:$KIND_CACHE/bin:\$PATH
  kubectl --context kind-home get nodes,remoteclusters
  kubectl --context kind-west get homeclusters
  kubectl --context kind-home lodestone status

make e2e runs the suite on them; make e2e-down deletes them.
E
