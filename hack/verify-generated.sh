#!/bin/bash
# Compares generated files with what would be generated now; changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
hack/generate.sh "$fresh" "$fresh"
stale=0
compare() { # <committed file> <generated file>
  diff -u "$1" "$2" || stale=1
}
generated=0
for file in "$fresh"/*; do
  case $file in
    *.go) compare "pkg/api/v1alpha1/$(basename "$file")" "$file" ;;
    *.yaml) compare "deploy/base/crds/$(basename "$file")" "$file" ;;
  esac
  generated=$((generated + 1))
done
if ((generated < 2)); then
  echo "controller-gen made $generated files, at least 2 were expected" >&2
  exit 1
fi
if ((stale)); then
  echo "generated files are out of date: run \`make generate\` and commit the result" >&2
  exit 1
fi
