#!/bin/bash
# Builds the image that the pods of the suite run: a shell with the usual commands,
# Redis, PostgreSQL and restic. From Debian's image if a registry gives it; else a
# static busybox, and the others with the libraries that they need, from Debian
# packages, as root.
. "$(dirname "$0")/settings.sh"
! docker image inspect "$workload_image" >/dev/null 2>&1 || exit 0
if timeout 300 docker pull -q "$debian_image" >"$KIND_CACHE/log/pull-debian.log" 2>&1; then
  say "building $workload_image"
  docker build -q -t "$workload_image" - >"$KIND_CACHE/log/workload.log" 2>&1 <<D || fail "the image of the pods does not build: see $KIND_CACHE/log/workload.log"
FROM $debian_image
RUN apt-get update && apt-get install -y --no-install-recommends redis-server redis-tools postgresql restic && rm -rf /var/lib/apt/lists/*
D
  exit 0
fi
"$here/rootfs.sh" workload
say "building $workload_image"
from=$KIND_CACHE/rootfs-workload
to=$KIND_CACHE/workload
rm -rf "$to"
mkdir -p "$to"/{bin,etc,tmp,data,usr/bin}
chmod 1777 "$to/tmp" "$to/data"
cp "$from/bin/busybox" "$to/bin/"
while read -r command; do
  [[ $command == busybox ]] || ln -s busybox "$to/bin/$command"
done < <("$to/bin/busybox" --list)
postgres=usr/lib/postgresql/15
programs=(usr/bin/redis-server usr/bin/redis-cli usr/bin/restic "$postgres"/bin/{postgres,initdb,psql,pg_isready})
# All that PostgreSQL loads by name, but not the compiler.
mapfile -t modules < <(cd "$from" && ls "$postgres"/lib/*.so | grep -v llvmjit)
"$here/copy-programs.sh" "$from" "$to" "${programs[@]}" "${modules[@]}"
tar -C "$from" -c usr/share/postgresql | tar -C "$to" -x
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$to/etc/passwd"
tar -C "$to" -c . | docker import -c 'ENV PATH=/bin:/usr/bin' -c 'CMD ["/bin/sh"]' - "$workload_image" >/dev/null
