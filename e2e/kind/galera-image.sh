#!/bin/bash
# Builds the image of the databases of deploy/examples/galera.yaml: MariaDB with Galera and what its scripts call. From
# Debian's image if a registry gave that; else from Debian packages, as root. After workload-image.sh.
. "$(dirname "$0")/settings.sh"
! docker image inspect "$galera_image" >/dev/null 2>&1 || exit 0
say "building $galera_image"
if docker image inspect "$debian_image" >/dev/null 2>&1; then
  docker build -q -t "$galera_image" - >"$KIND_CACHE/log/galera.log" 2>&1 <<D || fail "the image of MariaDB does not build: see $KIND_CACHE/log/galera.log"
FROM $debian_image
RUN apt-get update && apt-get install -y --no-install-recommends mariadb-server galera-4 && rm -rf /var/lib/apt/lists/*
D
  exit 0
fi
"$here/rootfs.sh" workload
from=$KIND_CACHE/rootfs-workload
to=$KIND_CACHE/galera
rm -rf "$to"
mkdir -p "$to"/{etc,tmp,usr/{bin,sbin,lib,lib64}}
chmod 1777 "$to/tmp"
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$to/$directory"; done
# Those of Debian's base system that scripts expect, and those of MariaDB.
mapfile -t programs < <(chroot "$from" dpkg -L bash coreutils dash findutils grep hostname sed |
  grep -E '^(/usr)?/s?bin/.' | sed 's,^/,,')
programs+=(usr/bin/{mawk,getent,ps,lsof,ss,rsync,my_print_defaults,resolveip,mariadb,mariadb-install-db,wsrep_sst_common,wsrep_sst_rsync}
  usr/sbin/mariadbd usr/lib/galera/libgalera_smm.so)
"$here/copy-programs.sh" "$from" "$to" "${programs[@]}"
ln -s mawk "$to/usr/bin/awk"
tar -C "$from" -c usr/share/mysql | tar -C "$to" -x
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$to/etc/passwd"
tar -C "$to" -c . | docker import -c 'ENV PATH=/usr/sbin:/usr/bin' -c 'CMD ["/bin/bash"]' - "$galera_image" >/dev/null
