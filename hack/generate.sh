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
  local file
  for file in "$root/$2"/*.yaml; do
    [[ $file == *kustomization.yaml || $file == *_shadowpods.yaml ]] || serve_v1beta1 "$file"
  done
}
# serve_v1beta1 <definition>: serves the fields of v1alpha1, which is what is stored, as v1beta1 too. Not ShadowPods, which only our
# programs write, and of which there may be so many that a second version in the memory of the API server costs.
serve_v1beta1() {
  local version
  version=$(sed -n '/^  versions:$/,$p' "$1" | sed '1d; s/^    name: v1alpha1$/    name: v1beta1/; s/^    storage: true$/    storage: false/')
  sed -i 's/^spec:$/spec:\n  conversion:\n    strategy: None/' "$1"
  printf '%s\n' "$version" >>"$1"
}
generate pkg/api/v1alpha1 deploy/base/crds
generate pkg/api/remote/v1alpha1 deploy/remote/crds
generate pkg/api/network/v1alpha1 deploy/network/program/crds
hack/go.sh "the reference pages" build -o bin/reference ./e2e/cmd/reference
bin/reference "$root"
hack/go.sh "the webhooks" build -o bin/webhooks ./e2e/cmd/webhooks
bin/webhooks "$root"
