#!/bin/bash
# build-tool.sh <tool> <how long>: builds the tool that .tools/<tool>/go.mod pins
# into bin/. Shows signs of life: a first build downloads and compiles a lot.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1
mkdir -p bin
echo "building $tool, $2 the first time"
start=$SECONDS
(cd ".tools/$tool" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "../../bin/$tool.new" tool) &
build=$!
trap 'kill "$build" 2>/dev/null || true' EXIT
while kill -0 "$build" 2>/dev/null; do
  sleep 1
  if ((SECONDS - start > 0 && (SECONDS - start) % 20 == 0)); then
    echo "building $tool: $((SECONDS - start)) s so far"
  fi
done
wait "$build"
mv "bin/$tool.new" "bin/$tool"
touch "bin/$tool"
echo "built $tool in $((SECONDS - start)) s"
