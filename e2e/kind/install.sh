#!/bin/bash
# Builds the programs and images of this working tree, loads them into the clusters
# and installs Lodestone there as a user would. Run again, it brings what changed.
. "$(dirname "$0")/settings.sh"
export PATH=$KIND_CACHE/bin:$PATH
home() { kubectl --context kind-home "$@"; }
west() { kubectl --context kind-west "$@"; }

# image <program>: builds the image of a program, unless it is there.
image() {
  local name=lodestone-$1:dev
  make -s -C "$root" build PROGRAMS="$1" >/dev/null
  local want
  want=$(hash "$root/bin/lodestone-$1")
  if [[ $(docker image inspect -f '{{index .Config.Labels "program"}}' "$name" 2>/dev/null) != "$want" ]]; then
    tar -C "$root/bin" -c "lodestone-$1" | docker import -c 'USER 65532:65532' -c "LABEL program=$want" \
      -c "ENTRYPOINT [\"/lodestone-$1\"]" - "$name" >/dev/null
  fi
}

# load <cluster> <image>: into its nodes, unless it is there.
load() {
  local marker=$KIND_CACHE/loaded/$1/${2//[^a-z0-9]/-} id
  id=$(docker inspect -f '{{.Id}}' "$1-control-plane")/$(docker image inspect -f '{{.Id}}' "$2")
  [[ $(cat "$marker" 2>/dev/null) != "$id" ]] || return 0
  kind load docker-image -q --name "$1" "$2"
  mkdir -p "${marker%/*}"
  echo "$id" >"$marker"
  restart[$1]=yes
}
declare -A restart

say "building the programs of this working tree"
"$here/workload-image.sh"
for program in provisioner extender; do
  image "$program"
  load home "lodestone-$program:dev"
done
for cluster in "${clusters[@]}"; do load "$cluster" "$workload_image"; done

home apply -k "$root/deploy/overlays/kind" >"$KIND_CACHE/log/apply-home.log"
[[ -z ${restart[home]-} ]] || home -n lodestone-system rollout restart deployment >/dev/null
west apply -k "$root/deploy/remote-volumes" >"$KIND_CACHE/log/apply-west.log"
home -n lodestone-system rollout status deployment --timeout=180s >/dev/null ||
  { home -n lodestone-system get pods -o wide >&2 && fail "Lodestone does not run in home: see above"; }
say "Lodestone runs in home"
