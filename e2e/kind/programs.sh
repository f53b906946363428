#!/bin/bash
# Builds, from Go modules, what a cluster without a registry consists of, into
# $KIND_CACHE/bin: all of Kubernetes in one program, kind, coredns, pause and the
# local-path provisioner. What is there already for the same sources stays.
# The first build takes 8 to 12 minutes on two cores. Arguments: only these.
. "$(dirname "$0")/settings.sh"
bin=$KIND_CACHE/bin
mkdir -p "$bin"
exec 9>"$bin/lock"
flock 9
version=k8s.io/component-base/version
declare -A package=([kind]=tool [local-path-provisioner]=tool)
for name in ${*:-kind kubernetes coredns pause local-path-provisioner}; do
  source=$tools/$name
  want=$(hash "$source"/*)
  [[ $(cat "$bin/$name.hash" 2>/dev/null) != "$want" || ! -x $bin/$name ]] || continue
  say "building $name"
  (cd "$source" && nice -n 5 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X $version.gitVersion=$KUBERNETES_VERSION -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")" \
    -o "$bin/$name.new" "${package[$name]:-.}")
  mv "$bin/$name.new" "$bin/$name"
  echo "$want" >"$bin/$name.hash"
done
# kubectl of this version, by the name that the program goes by.
[[ ! -x $bin/kubernetes ]] || ln -sf kubernetes "$bin/kubectl"
