#!/bin/bash
# generate.sh <deep copy directory> <CRD directory>: generates from pkg/api.
set -euo pipefail
cd "$(dirname "$0")/.."
bin/controller-gen object paths=./pkg/api/... "output:object:dir=$1"
bin/controller-gen crd paths=./pkg/api/... "output:crd:dir=$2"
