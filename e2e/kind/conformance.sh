#!/bin/bash
# conformance.sh: makes what TestServicesConform needs of the conformance tests of the Multi-Cluster Services API, in a clone
# of kubernetes-sigs/mcs-api that LODESTONE_MCS names: themselves as a program, and in both clusters the images of their pods, from a
# registry. Where none answers, one image of Debian packages has the names of both; that takes root.
. "$(dirname "$0")/settings.sh"
export PATH=$KIND_CACHE/bin:$PATH
say "building the conformance tests in $LODESTONE_MCS"
(cd "$LODESTONE_MCS/conformance" && go test -vet=off -c -o "$KIND_CACHE/conformance" .) ||
  fail "the conformance tests do not build: see above"

mapfile -t images < <(sed -n 's,^.*Image: *"\([^"]*\)".*$,\1,p' "$LODESTONE_MCS/conformance/k8s_objects.go" | sort -u)
((${#images[@]} > 0)) || fail "$LODESTONE_MCS/conformance/k8s_objects.go names no image: this script has to find them elsewhere"
for image in "${images[@]}"; do
  ! docker image inspect "$image" >/dev/null 2>&1 || continue
  timeout 300 docker pull -q "$image" >"$KIND_CACHE/log/pull-conformance.log" 2>&1 || {
    to=$KIND_CACHE/conformance-root
    if [[ ! -d $to ]]; then
      "$here/packages.sh"
      say "installing Debian packages for the pods of the conformance tests"
      rm -rf "$to.new"
      debootstrap --variant=minbase --include=bind9-dnsutils,netcat-openbsd,socat bookworm "$to.new" >"$KIND_CACHE/log/conformance.log" ||
        fail "debootstrap failed: see $KIND_CACHE/log/conformance.log"
      rm -rf "$to.new"/var/cache/apt/* "$to.new"/var/lib/apt/lists/* "$to.new"/usr/share/{doc,man,locale,info}
      mv "$to.new" "$to"
    fi
    tar -C "$to" -c . | docker import - "$image" >/dev/null
  }
done
for cluster in "${clusters[@]}"; do kind load docker-image -q --name "$cluster" "${images[@]}"; done
