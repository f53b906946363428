#!/bin/bash
# node-image.sh <cluster> <image>: builds the kind node image of a cluster without a container
# registry, from Debian packages and Go modules. Needs root. Takes 1 to 2 minutes after programs.sh.
. "$(dirname "$0")/settings.sh"
cluster=$1 image=$2
version=$(version "$cluster")
want=$(cat "$here"/{node-image,node-store,workload-image,copy-programs,rootfs,settings}.sh "$programs"/*.{mod,sum} "$programs"/*/*.{go,mod} | sha256sum | cut -c1-12)
[[ $(docker image inspect -f '{{index .Config.Labels "sources"}}' "$image" 2>/dev/null) != "$want" ]] || exit 0
"$here/packages.sh"
# Both mostly wait for packages while programs are compiled.
"$here/workload-image.sh" &
workload=$!
"$here/rootfs.sh" node &
rootfs=$!
bin=$KIND_CACHE/bin-$version
LODESTONE_KUBERNETES=$(minor "$cluster") "$here/programs.sh" "$bin" node coredns local-path-provisioner
wait "$workload"
wait "$rootfs"
say "building $image"
node=$KIND_CACHE/node
rm -rf "$node"
cp -a "$KIND_CACHE/rootfs-node" "$node"

# systemd in a container: none of Debian's units, only those that kind brings.
rm -f "$node"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$node"/etc/systemd/system/*.wants/* \
  "$node"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
  "$node"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
echo ReadKMsg=no >>"$node/etc/systemd/journald.conf"
mkdir -p "$node"/{opt/cni,etc/kubernetes/manifests,kind/manifests}
ln -sfn /usr/lib/cni "$node/opt/cni/bin"
ln -sf /usr/bin/containerd "$node/usr/local/bin/containerd"

# kind's own files, straight from its module; a module's files are not executable.
kind_module=$(cd "$programs" && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
tar -C "$kind_module/images/base/files" --mode=u+w -c . | tar -C "$node" --no-same-owner -x
chmod 755 "$node"/usr/local/bin/* "$node"/kind/bin/*

install -m 755 "$bin/kubernetes" "$node/usr/bin/kubernetes"
for program in kubelet kubeadm kubectl; do ln -s kubernetes "$node/usr/bin/$program"; done
echo -n "$version" >"$node/kind/version"
pause=$(ln -sf "$bin/kubernetes" "$KIND_CACHE/kubeadm" && "$KIND_CACHE/kubeadm" config images list --kubernetes-version "$version" | grep /pause:)
# No hook for product files; and no process may lower its oom_score_adj where the
# machine lacks CAP_SYS_RESOURCE.
sed -i -e '/base_runtime_spec/d' -e "s,sandbox_image = .*,sandbox_image = \"$pause\"," \
  -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
grep -q "\"$pause\"" "$node/etc/containerd/config.toml" || fail "kind's configuration of containerd is not as expected"
chroot "$node" systemctl -q enable kubelet containerd undo-mount-hacks
chroot "$node" systemctl -q mask systemd-binfmt
# The manifest of the class `standard` is a constant in kind's source.
sed -n '/^const defaultStorageManifest = `$/,/^`$/p' "$kind_module/pkg/build/nodeimage/const_storage.go" |
  sed -e '1d;$d' -e "s,\` + storageProvisionerImage + \`,$local_path_image," -e "s,\` + storageHelperImage + \`,$workload_image," \
    >"$node/kind/manifests/default-storage.yaml"
grep -q "$local_path_image" "$node/kind/manifests/default-storage.yaml" || fail "kind's manifest of the local-path provisioner is not as expected"

"$here/node-store.sh" "$node" "$bin" "$version"
tar -C "$node" -c . | docker import -c 'ENV container=docker' -c "LABEL sources=$want" \
  -c 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' - "$image" >/dev/null
rm -rf "$node"
say "built $image"
