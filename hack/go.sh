#!/bin/bash
# go.sh <what> <arguments>: go build or go list, and says how far <what> is, now and then,
# in the stead of a line for each module that is fetched.
set -euo pipefail
what=$1 command=$2
shift 2
started=$SECONDS fetched=0 compiled=0 total=

say() {
  local progress="" argument packages=()
  ((fetched == 0)) || progress="fetched $fetched modules, "
  if ((compiled > 0)); then
    if [[ -z $total ]]; then
      for argument; do
        case $argument in -deps | -test | -tags=* | tool | . | ./* | [a-z]*.*/*) packages+=("$argument") ;; esac
      done
      total=$(go list -deps "${packages[@]}" 2>/dev/null | wc -l)
    fi
    # Packages that Go has in its cache are never named, so the total is not always reached.
    progress="compiled $compiled of at most $total packages, "
  fi
  echo "building $what: $progress$((SECONDS - started)) s" >&2
}

# follow reads what go says: counts modules and packages, and hands on the rest.
follow() {
  local line status next=$((SECONDS + 10))
  while :; do
    status=0
    IFS= read -r -t 5 line || status=$?
    if ((status == 0)); then
      case $line in
      'go: downloading '*) fetched=$((fetched + 1)) ;;
      '' | *[\ :#$'\t']*) printf '%s\n' "$line" >&2 ;;
      *) compiled=$((compiled + 1)) ;;
      esac
    elif ((status < 128)); then # not that nothing came for a while
      return
    fi
    if ((SECONDS >= next)); then
      say "$@"
      next=$((SECONDS + 15))
    fi
  done
}

{ go "$command" -v "$@" 2>&1 >&3 | follow "$@"; } 3>&1
