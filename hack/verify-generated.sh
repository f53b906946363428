#!/bin/bash
# Compares generated files with what would be generated now; changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
hack/generate.sh "$fresh"
stale=0 generated=0
while IFS= read -r file; do
  diff -u "$file" "$fresh/$file" || stale=1
  generated=$((generated + 1))
done < <(cd "$fresh" && find . -type f | sort)
if ((generated < 10)); then
  echo "$generated files were generated, at least 10 were expected" >&2
  exit 1
fi
if ((stale)); then
  echo "generated files are out of date: run \`make generate\` and commit the result" >&2
  exit 1
fi
