#!/bin/bash
# copy-programs.sh <from> <to> <file...>: copies programs and what they load, with the
# libraries that these need, from one root file system into another. Needs root.
. "$(dirname "$0")/settings.sh"
from=$1 to=$2
shift 2
mapfile -t libraries < <(for program; do chroot "$from" ldd "/$program" 2>/dev/null || true; done | grep -o '/lib[^ ]*\|/usr/lib[^ ]*' | sed 's,^/,,' | sort -u)
tar -C "$from" -h -c "$@" "${libraries[@]}" | tar -C "$to" -x
