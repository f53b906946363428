#!/bin/bash
# node-store.sh <root> <programs> <version>: unpacks the images of a cluster into the store of the
# containerd in that root file system, with a containerd on this side: a store on
# an overlay file system, as in a build, cannot be unpacked. Needs root.
. "$(dirname "$0")/settings.sh"
node=$1 bin=$2 version=$3
work=$KIND_CACHE/store
rm -rf "$work"
mkdir -p "$work"

archive() { # <file> < root file system as tar: writes an archive of the image
  local image
  image=$(docker import "${@:2}" - "lodestone-e2e/archived:${1//[^a-z0-9]/-}")
  docker save "lodestone-e2e/archived:${1//[^a-z0-9]/-}" -o "$work/$1.tar"
  docker rmi "$image" >/dev/null
}
one() { # <file>: an archive of an image with only that program
  tar -C "$bin" -h --transform 's,^,usr/local/bin/,' -c "$1" | archive "$1" -c "ENTRYPOINT [\"/usr/local/bin/$1\"]"
}

# All programs of the control plane, and kube-proxy, which calls nft, are in one
# image, which has a name for each. Without the names of protocols nft lists those of
# maps as numbers: whenever kube-proxy writes all Services anew, it would find none of
# them, and delete what is there.
mkdir -p "$work/kubernetes/usr/local/bin"
mapfile -t libraries < <(chroot "$node" ldd /usr/sbin/nft | grep -o '/lib[^ ]*' | sed 's,^/,,')
tar -C "$node" -h -c usr/sbin/nft etc/protocols "${libraries[@]}" | tar -C "$work/kubernetes" -x
ln -L "$bin/kubernetes" "$work/kubernetes/usr/local/bin/kubernetes" 2>/dev/null || cp "$bin/kubernetes" "$work/kubernetes/usr/local/bin/"
for program in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do
  ln -s kubernetes "$work/kubernetes/usr/local/bin/$program"
done
tar -C "$work/kubernetes" -c . | archive kubernetes
one pause
one coredns
one local-path-provisioner
docker save "$workload_image" -o "$work/workload.tar"

store=$node/var/lib/containerd
mkdir -p "$store"
nice -n 5 containerd -c /dev/null --root "$store" --state "$work/run" --address "$work/socket" >"$KIND_CACHE/log/containerd.log" 2>&1 &
containerd=$!
trap 'kill "$containerd" 2>/dev/null || true' EXIT
ctr() { command ctr -a "$work/socket" -n k8s.io "$@"; }
for _ in $(seq 50); do
  ! ctr version >/dev/null 2>&1 || break
  sleep 0.2
done
for archive in "$work"/*.tar; do ctr images import "$archive" >/dev/null; done
while read -r image; do
  name=${image##*/} name=${name%%:*}
  case $name in
  pause | coredns) from=$name ;;
  *) from=kubernetes ;;
  esac
  ctr images tag "docker.io/lodestone-e2e/archived:$from" "$image" >/dev/null
done < <(ln -sf "$bin/kubernetes" "$work/kubeadm" && "$work/kubeadm" config images list --kubernetes-version "$version")
ctr images tag docker.io/lodestone-e2e/archived:local-path-provisioner "$local_path_image" >/dev/null
# shellcheck disable=SC2046 # one word an image
ctr images rm $(ctr images ls -q | grep /archived:) >/dev/null
# What runs are the snapshots; the layers beside them would double the size. Ending
# a lease with --sync makes the collector run at once.
# shellcheck disable=SC2046 # one word a layer
ctr content rm $(ctr content ls | awk '$2 ~ /[MG]i?B$/ || $3 ~ /^[MG]i?B$/ {print $1}') >/dev/null
ctr leases delete --sync "$(ctr leases create)" >/dev/null
ctr images ls -q | grep -v '^sha256' >"$KIND_CACHE/log/images.txt"
kill "$containerd"
wait "$containerd" || true
trap - EXIT
rm -rf "$work"
