#!/bin/bash
# verify-length.sh <limit>: lists Go files longer than the limit, generated ones
# excepted. A longer file has more than one responsibility: split it.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=$1 long=0
while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  grep -q '^// Code generated .* DO NOT EDIT\.$' "$file" && continue
  lines=$(wc -l <"$file")
  if ((lines > limit)); then
    echo "$file has $lines lines, $limit are allowed: split it" >&2
    long=1
  fi
done < <(git ls-files -z --cached --others --exclude-standard -- '*.go')
exit "$long"
