#!/bin/bash
# programs.sh <folder> <set...>: builds sets of programs from Go modules, unless they are in the
# user's cache, and has the folder name them: kind; node, which is all of Kubernetes
# in one program; coredns, with pause; the local-path-provisioner.
. "$(dirname "$0")/settings.sh"
bin=$1
shift
mkdir -p "$bin"
directories=$(cd "$root" && go run ./e2e/cmd/build "$@") || fail "$* cannot be built: see above"
for directory in $directories; do ln -sfn "$directory"/* "$bin/"; done
# kubectl of this version, by the name that the program goes by.
[[ ! -e $bin/kubernetes ]] || ln -sfn "$(readlink "$bin/kubernetes")" "$bin/kubectl"
