#!/bin/bash
# Builds the image of the databases of deploy/examples/patroni.yaml: PostgreSQL and Patroni, which is in Python. From
# Debian's image if a registry gave that; else from Debian packages, as root. After workload-image.sh.
. "$(dirname "$0")/settings.sh"
! docker image inspect "$patroni_image" >/dev/null 2>&1 || exit 0
say "building $patroni_image"
if docker image inspect "$debian_image" >/dev/null 2>&1; then
  docker build -q -t "$patroni_image" - >"$KIND_CACHE/log/patroni.log" 2>&1 <<D || fail "the image of Patroni does not build: see $KIND_CACHE/log/patroni.log"
FROM $debian_image
RUN apt-get update && apt-get install -y --no-install-recommends postgresql patroni && rm -rf /var/lib/apt/lists/*
D
  exit 0
fi
"$here/rootfs.sh" workload
from=$KIND_CACHE/rootfs-workload
to=$KIND_CACHE/patroni
rm -rf "$to"
mkdir -p "$to"/{etc,tmp,usr/{bin,sbin,lib,lib64}}
chmod 1777 "$to/tmp"
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$to/$directory"; done
mapfile -t programs < <(chroot "$from" dpkg -L bash coreutils dash findutils grep sed | grep -E '^(/usr)?/s?bin/.' | sed 's,^/,,')
postgres=usr/lib/postgresql/15
programs+=(usr/bin/{patroni,patronictl,python3,getent,ps} "$postgres"/bin/{postgres,initdb,psql,pg_isready,pg_ctl,pg_rewind,pg_controldata,pg_basebackup})
# All that PostgreSQL and Python load by name, but not the compiler.
mapfile -t modules < <(cd "$from" && ls "$postgres"/lib/*.so | grep -v llvmjit && find usr/lib/python3 usr/lib/python3.11 -name '*.so')
"$here/copy-programs.sh" "$from" "$to" "${programs[@]}" "${modules[@]}"
tar -C "$from" -c usr/share/postgresql usr/lib/python3 usr/lib/python3.11 | tar -C "$to" -x
ln -s ../lib/postgresql/15/bin/psql "$to/usr/bin/psql"
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n' >"$to/etc/passwd"
tar -C "$to" -c . | docker import -c 'ENV PATH=/usr/sbin:/usr/bin' -c 'CMD ["/bin/bash"]' - "$patroni_image" >/dev/null
