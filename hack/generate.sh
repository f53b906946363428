#!/bin/bash
# generate.sh <root>: generates deep copies and custom resource definitions from
# pkg/api, the reference pages from those and from the programs' flags, and webhooks from
# the policies of deploy/, into the tree at root, which may be this one.
set -euo pipefail
root=$(realpath "$1")
cd "$(dirname "$0")/.."
generate() { # <API package> <CRD directory>
  mkdir -p "$root/$1" "$root/$2"
  bin/controller-gen object paths="./$1" "output:object:dir=$root/$1"
  bin/controller-gen crd paths="./$1" "output:crd:dir=$root/$2"
}
generate pkg/api/v1alpha1 deploy/base/crds
generate pkg/api/remote/v1alpha1 deploy/remote/crds
generate pkg/api/network/v1alpha1 deploy/network/program/crds
hack/go.sh "the reference pages" build -o bin/reference ./e2e/cmd/reference
bin/reference "$root"
hack/go.sh "the webhooks" build -o bin/webhooks ./e2e/cmd/webhooks
bin/webhooks "$root"
