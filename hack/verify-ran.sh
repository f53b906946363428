#!/bin/bash
# verify-ran.sh <record>: fails if a package in this record of test events failed
# as a whole and no test of it did: its TestMain gave up, it did not compile, or its
# time was over. Such a package may pass when it is run again without any test.
set -euo pipefail
record=$1
awk '
# value is what this event has under a key; quotes within a value are escaped.
function value(key) {
  if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
  return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
!/^\{/ { next }
{ package = value("Package") }
package == "" { next }
{ seen = 1 }
value("Action") != "fail" { next }
value("Test") != "" { tests[package] = 1; next }
{ whole[package] = 1 }
END {
  if (!seen) {
    print "no package ran" > "/dev/stderr"
    bad = 1
  }
  for (package in whole) {
    if (package in tests) continue
    print package " failed as a whole, so not all of its tests ran: its output above says why" > "/dev/stderr"
    bad = 1
  }
  exit bad
}' "$record"
