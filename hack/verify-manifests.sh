#!/bin/bash
# Builds every kustomization that can be applied, and checks that what they name
# as images is pinned.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(mktemp)
trap 'rm -f "$built"' EXIT
for directory in deploy/base deploy/base/* deploy/overlays/* deploy/remote-volumes deploy/remote; do
  [[ -f $directory/kustomization.yaml ]] || continue
  bin/kustomize build "$directory" >"$built" || {
    echo "$directory does not build" >&2
    exit 1
  }
  # Only overlays choose images, and each must choose a tag for every image.
  if [[ $directory == deploy/overlays/* ]] && grep -E '^ +image:' "$built" | grep -vE ':[A-Za-z0-9][A-Za-z0-9._-]*$'; then
    echo "$directory has images without a tag, listed above: name it under images:" >&2
    exit 1
  fi
done
# Each component goes on the base, also those that no overlay has.
overlay=$(mktemp -d)
trap 'rm -rf "$built" "$overlay"' EXIT
root=$(realpath --relative-to="$overlay" "$PWD")
for component in deploy/components/*; do
  printf '%s\n' 'apiVersion: kustomize.config.k8s.io/v1beta1' 'kind: Kustomization' \
    "resources: [$root/deploy/base]" "components: [$root/$component]" >"$overlay/kustomization.yaml"
  bin/kustomize build "$overlay" >"$built" || {
    echo "$component does not build on deploy/base" >&2
    exit 1
  }
done
