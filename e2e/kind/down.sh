#!/bin/bash
# Deletes the clusters home, west and east, where there is that, and stops the engine if engine.sh started it.
. "$(dirname "$0")/settings.sh"
export PATH=$KIND_CACHE/bin:$PATH
if docker info >/dev/null 2>&1 && [[ -x $KIND_CACHE/bin/kind ]]; then
  for cluster in home west east; do
    # Somebody else's cluster east is no trouble where the suite has none.
    [[ $cluster != east ]] || mounts east "$shared" || continue
    ours "$cluster" || continue
    docker unpause "$cluster-control-plane" >/dev/null 2>&1 || true
    # What a failed test has left there, as root.
    docker exec "$cluster-control-plane" find "$shared" -mindepth 1 -delete >/dev/null 2>&1 || true
    kind delete cluster -q --name "$cluster"
  done
  # Loop devices of disks that were still attached: the kernel keeps them, though their files are gone.
  losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null | awk '$2 ~ /\/lodestone-disk\/volumes\// && /\(deleted\)$/ {print $1}' |
    xargs -r losetup --detach 2>/dev/null || true
fi
"$here/engine.sh" stop
