#!/bin/bash
# storage.sh <cluster> <bytes>: runs the CSI driver of e2e/disk in the node of a
# cluster, with the real sidecars, so that there is storage that can do more than
# directories can: class `disk`. They are attached to the node and detached, as the disks
# of clouds are, and have 300 MiB at least, as xfs needs. They may have so many bytes
# together. What runs already is left alone unless its programs have changed.
# E2E_CLASS is the class that claims get which name none, standard or disk.
. "$(dirname "$0")/settings.sh"
export PATH=$KIND_CACHE/bin:$PATH
cluster=${1:?home or west} bytes=${2:?how many bytes the volumes may have}
node=$cluster-control-plane
programs=$KIND_CACHE/storage
name=disk.e2e.lodestone.dev
kubectl=(kubectl --context "kind-$cluster")

# unit <name> <what it runs after> <command...>: a service of the node. The sidecars
# end when they lose the driver or the API server, and are to come back.
unit() {
  docker exec -i "$node" sh -c "cat >/etc/systemd/system/lodestone-$1.service" <<U
[Unit]
After=$2
StartLimitIntervalSec=0
[Service]
Environment=KUBECONFIG=/etc/kubernetes/admin.conf NAMESPACE=kube-system
ExecStart=/opt/lodestone/${*:3}
Restart=always
RestartSec=1
U
  units+=("lodestone-$1")
}
units=()

want=$(hash "$programs"/{disk,csi-*,snapshot-controller} "$here/storage.sh")-$bytes
if [[ $(docker exec "$node" cat /opt/lodestone/installed 2>/dev/null) != "$want" ]]; then
  docker exec "$node" mkdir -p /opt/lodestone /var/lib/lodestone-disk "/var/lib/kubelet/plugins/$name"
  # A program that runs cannot be written to.
  docker exec "$node" sh -c 'rm -f /opt/lodestone/*'
  tar -C "$programs" -c disk csi-attacher csi-provisioner csi-resizer csi-snapshotter snapshot-controller | docker exec -i "$node" tar -C /opt/lodestone -x
  # The node has the loop devices that the machine had when it was started; the
  # kernel gives out others, too.
  # shellcheck disable=SC2016 # the node's shell
  docker exec "$node" sh -c 'for i in $(seq 0 127); do test -e /dev/loop$i || mknod -m 660 /dev/loop$i b 7 $i; done'
  socket=/var/lib/kubelet/plugins/$name/csi.sock
  unit disk containerd.service disk --name=$name --node="$node" --attach --directory=/var/lib/lodestone-disk --pool="$bytes" --least=$((300 << 20)) \
    --socket=$socket --registration=/var/lib/kubelet/plugins_registry/$name-reg.sock
  sidecar=(--kubeconfig=/etc/kubernetes/admin.conf --csi-address=$socket --retry-interval-start=500ms --retry-interval-max=5s)
  unit csi-provisioner lodestone-disk.service csi-provisioner "${sidecar[@]}" --strict-topology --extra-create-metadata \
    --enable-capacity --capacity-ownerref-level=-1 --capacity-poll-interval=5s
  unit csi-attacher lodestone-disk.service csi-attacher "${sidecar[@]}"
  unit csi-resizer lodestone-disk.service csi-resizer "${sidecar[@]}"
  groups=--feature-gates=CSIVolumeGroupSnapshot=true
  unit csi-snapshotter lodestone-disk.service csi-snapshotter "${sidecar[@]}" "$groups"
  unit snapshot-controller containerd.service snapshot-controller --kubeconfig=/etc/kubernetes/admin.conf "$groups"
  "${kubectl[@]}" apply --server-side -k "$programs/crd" >"$KIND_CACHE/log/storage-$cluster.log"
  # What it says of attachments cannot be changed.
  "${kubectl[@]}" delete csidriver "$name" --ignore-not-found >>"$KIND_CACHE/log/storage-$cluster.log"
  docker exec "$node" systemctl daemon-reload
  docker exec "$node" systemctl restart "${units[@]}"
  docker exec "$node" sh -c "echo $want >/opt/lodestone/installed"
fi

for resource in volumesnapshots.snapshot volumesnapshotcontents.snapshot volumesnapshotclasses.snapshot volumegroupsnapshotclasses.groupsnapshot; do
  "${kubectl[@]}" wait --for=condition=Established "crd/$resource.storage.k8s.io" --timeout=30s >>"$KIND_CACHE/log/storage-$cluster.log"
done
# ext4 grows while it is mounted only where there is CAP_SYS_RESOURCE; the stock
# node image has no xfs.
type=ext4
! docker exec "$node" sh -c 'command -v mkfs.xfs' >/dev/null || type=xfs
"${kubectl[@]}" apply -f - >>"$KIND_CACHE/log/storage-$cluster.log" <<Y
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: $name}
spec: {attachRequired: true, storageCapacity: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk}
provisioner: $name
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: $type}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: disk, annotations: {snapshot.storage.kubernetes.io/is-default-class: "true"}}
driver: $name
deletionPolicy: Delete
---
apiVersion: groupsnapshot.storage.k8s.io/v1beta2
kind: VolumeGroupSnapshotClass
metadata: {name: disk}
driver: $name
deletionPolicy: Delete
Y
default=${E2E_CLASS:-standard}
for class in standard disk; do
  is=false
  [[ $class != "$default" ]] || is=true
  "${kubectl[@]}" annotate --overwrite storageclass "$class" "storageclass.kubernetes.io/is-default-class=$is" >>"$KIND_CACHE/log/storage-$cluster.log"
done
# What users at home ask for.
[[ $cluster != home ]] || "${kubectl[@]}" apply -f - >>"$KIND_CACHE/log/storage-$cluster.log" <<Y
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: e2e-disk}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters: {lodestone.dev/local-class: disk, lodestone.dev/remote-class: disk}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: lodestone, annotations: {snapshot.storage.kubernetes.io/is-default-class: "true"}}
driver: lodestone.dev
deletionPolicy: Delete
Y
# The kubelet says that it knows the driver.
for _ in $(seq 120); do
  ! "${kubectl[@]}" get csinode "$node" -o jsonpath='{.spec.drivers[*].name}' | grep -qw "$name" || exit 0
  sleep 0.5
done
docker exec "$node" journalctl -u lodestone-disk --no-pager -n 20 >&2
fail "the kubelet of $node does not know the driver $name: see above"
