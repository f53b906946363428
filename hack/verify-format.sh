#!/bin/bash
# Lists Go files that gofmt would change.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
if [[ -n $unformatted ]]; then
  echo "not formatted (run gofmt -w on them):" >&2
  echo "$unformatted" >&2
  exit 1
fi
