#!/bin/bash
# Runs the suite on a pair of clusters: one that runs already, which is left
# running, or one that is brought up for it and taken down afterwards, also when the
# run is interrupted. KEEP=1 keeps it. RUN=<pattern> runs some tests. With LODESTONE_LIQO the node
# that stands for west is one of Liqo; with LODESTONE_INSTALL it is the tests that install Lodestone; with LODESTONE_MCS
# the conformance tests in that clone.
. "$(dirname "$0")/settings.sh"
results=$root/bin/results
mkdir -p "$results"
rm -rf "$results/e2e-logs" "$results/e2e.json" "$results/e2e-again.txt"
ran=yes
docker inspect "${clusters[@]/%/-control-plane}" >/dev/null 2>&1 || ran=

# down takes down what this run has brought up.
down() {
  local status=$?
  trap - EXIT
  [[ -n $ran || -n ${KEEP-} ]] || "$here/down.sh" || status=1
  exit "$status"
}
trap down EXIT

# run runs a command in a process group of its own, so that an interrupt ends all of
# it before the clusters are taken down. Only packages being installed may not be
# interrupted; they are not waited for longer than 30 s.
set -m
child=
run() {
  "$@" &
  child=$!
  wait "$child"
}
interrupted() {
  trap '' INT TERM
  echo "interrupted: ending the run and taking down what it has brought up" >&2
  if [[ -n $child ]] && kill -TERM -- "-$child" 2>/dev/null; then
    for _ in $(seq 150); do
      kill -0 -- "-$child" 2>/dev/null || break
      sleep 0.2
    done
  fi
  exit 130
}
trap interrupted INT TERM

run "$here/up.sh"
[[ -z ${LODESTONE_LIQO-} ]] || run "$root/e2e/liqo/install.sh"
[[ -z ${LODESTONE_MCS-} ]] || run "$here/conformance.sh"
say "running the suite"
cd "$root"
# Tests mostly wait for kubelets: one more at a time than there are cores of a small machine.
arguments=(-vet=off -count=1 -parallel 3 -timeout 65m)
[[ -z ${E2E_LONG-} ]] || arguments=(-vet=off -count=1 -parallel 3 -timeout 140m)
[[ -z ${RUN-} ]] || arguments+=(-run "$RUN")
# On a busy machine a wait may end too early: up to two failures are tried once more, and reported.
LODESTONE_KIND=1 run nice -n 5 bin/gotestsum --format=testname --jsonfile="$results/e2e.json" --rerun-fails=1 --rerun-fails-max-failures=2 \
  --rerun-fails-report="$results/e2e-again.txt" --packages=./e2e/kind/ -- "${arguments[@]}"
if [[ -s $results/e2e-again.txt ]]; then echo "failed once, and passed when run again:" && cat "$results/e2e-again.txt"; fi
# What failed as a whole has no test to try again, and would pass.
hack/verify-ran.sh "$results/e2e.json"
