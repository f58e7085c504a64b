#!/usr/bin/env bash
# Packs charts/phasegate into OUTDIR, as VERSION; helm takes the time of each entry
# from SOURCE_DATE_EPOCH, so that the same chart gives the same bytes.
# Usage: VERSION=v0.1.0 SOURCE_DATE_EPOCH=… hack/chart.sh OUTDIR
set -euo pipefail

: "${VERSION:?hack/chart.sh: give VERSION and SOURCE_DATE_EPOCH; hack/version.sh prints those of a clone}"
: "${SOURCE_DATE_EPOCH:?hack/chart.sh: give SOURCE_DATE_EPOCH, the time of the commit in seconds}"
export SOURCE_DATE_EPOCH
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

helm=${HELM:-bin/tools/helm}
[ -x "$helm" ] || { echo "hack/chart.sh: $helm is not there: run make tools, or set HELM" >&2; exit 1; }
"$helm" package charts/phasegate --version "${VERSION#v}" --app-version "${VERSION#v}" --destination "$out" >/dev/null
