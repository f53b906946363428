#!/bin/bash
# Shows what `go mod tidy` would change in each module; changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
untidy=0
while IFS= read -r file; do
  directory=$(dirname "$file")
  { (cd "$directory" && go mod tidy -diff) 2>&1 >&3 | sed '/^go: downloading /d' >&2; } 3>&1 || {
    echo "module in $directory is not tidy: run \`go mod tidy\` there" >&2
    untidy=1
  }
done < <(git ls-files -- go.mod '*/go.mod')
# The same programs with another Kubernetes.
while IFS= read -r file; do
  { (cd "$(dirname "$file")" && go mod tidy -diff -modfile="$(basename "$file")") 2>&1 >&3 | sed '/^go: downloading /d' >&2; } 3>&1 || {
    echo "$file is not tidy: run \`go mod tidy -modfile=$(basename "$file")\` in its folder" >&2
    untidy=1
  }
done < <(git ls-files -- 'e2e/programs/kubernetes-*.mod')
exit "$untidy"
