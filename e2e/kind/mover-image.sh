#!/bin/bash
# Builds the image of the mover as the Dockerfile says, with the program of this
# working tree and its restic: beside rsync from Debian's image, or where no registry gave that,
# from Debian packages, as root. After workload-image.sh.
. "$(dirname "$0")/settings.sh"
name=lodestone-mover:dev
restic=$(cd "$root" && go run ./e2e/cmd/build restic)/restic || fail "restic does not build: see above"
want=$(hash "$root/bin/lodestone-mover" "$restic" "$here/mover-image.sh")
[[ $(docker image inspect -f '{{index .Config.Labels "program"}}' "$name" 2>/dev/null) != "$want" ]] || exit 0
to=$KIND_CACHE/mover
rm -rf "$to"
mkdir -p "$to"/{etc,tmp,usr/bin}
cp "$root/bin/lodestone-mover" "$to/"
cp "$restic" "$to/usr/bin/"
if docker image inspect "$debian_image" >/dev/null 2>&1; then
  cat >"$to/Dockerfile" <<D
FROM $debian_image
RUN apt-get update && apt-get install -y --no-install-recommends rsync ca-certificates && rm -rf /var/lib/apt/lists/*
COPY lodestone-mover /lodestone-mover
COPY usr/bin/restic /usr/bin/restic
LABEL program=$want
USER 0:0
ENTRYPOINT ["/lodestone-mover"]
D
  docker build -q -t "$name" "$to" >"$KIND_CACHE/log/mover.log" 2>&1 || fail "the image of the mover does not build: see $KIND_CACHE/log/mover.log"
  exit 0
fi
"$here/rootfs.sh" workload
"$here/copy-programs.sh" "$KIND_CACHE/rootfs-workload" "$to" usr/bin/rsync
printf 'root:x:0:0:root:/:/bin/sh\n' >"$to/etc/passwd"
tar -C "$to" -c . | docker import -c 'USER 0:0' -c "LABEL program=$want" -c 'ENV PATH=/usr/bin' \
  -c 'ENTRYPOINT ["/lodestone-mover"]' - "$name" >/dev/null
