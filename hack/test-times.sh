#!/bin/bash
# test-times.sh <record> <times>: where the time of the integration tests went: the ten
# slowest tests of this record of events, and the packages, by what they noted.
set -euo pipefail
echo "the slowest tests:"
bin/gotestsum tool slowest --num 10 --jsonfile "$1" | sed 's,^[^ ]*/e2e/,  e2e/,'
echo "packages: seconds they ran, seconds their tests waited together, seconds of a processor"
sort -k2,2nr "$2" | awk '
{ printf "  %-16s %5d %6d %5d\n", $1, $2, $3, $4; ran += $2; waited += $3; processor += $4 }
END { printf "  %-16s %5d %6d %5d\n", "all", ran, waited, processor }'
