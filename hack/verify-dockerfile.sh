#!/bin/bash
# Checks, without a container engine, that what the Dockerfile copies from the
# tree exists, is not kept out by .dockerignore, and holds all that the programs
# import; and that there is a stage for each program.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
  echo "$1" >&2
  exit 1
}
mapfile -t copied < <(awk '$1 == "COPY" && $2 !~ /^--/ {for (i = 2; i < NF; i++) print $i}' Dockerfile)
((${#copied[@]} > 0)) || fail "the Dockerfile copies nothing"
for path in "${copied[@]}"; do
  [[ -e $path ]] || fail "the Dockerfile copies $path, which does not exist"
  grep -qxF "!/${path%/}" .dockerignore || fail ".dockerignore keeps out $path: add the line !/${path%/}"
done
# is_copied <folder/>: it is, or lies below, a folder that the Dockerfile copies.
is_copied() {
  local path
  for path in "${copied[@]%/}"; do
    [[ $1 != "$path"/* ]] || return 0
  done
  return 1
}
for program in provisioner extender virtualnode remote-agent mover network; do
  grep -qE "^FROM .* AS $program\$" Dockerfile || fail "the Dockerfile has no stage named $program"
  while IFS= read -r package; do
    is_copied "$package/" || fail "$program imports $package, which the Dockerfile does not copy"
  done < <(go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "./${program//-/}" |
    sed -n 's,^github\.com/lodestone-storage/lodestone/,,p')
done
