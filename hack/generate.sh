#!/usr/bin/env bash
# Writes everything that is generated: deepcopy methods, CRDs and JSON Schemas from
# api/, the chart's roles from what the controllers say that they need, a page for
# each machine, one for the built-in actions, one for the commands and one for the
# metrics.
set -euo pipefail
cd "$(dirname "$0")/.."

files=charts/phasegate/files
gen=bin/tools/controller-gen

# Made aside and exchanged, so that the file of a kind that is gone goes too.
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
mkdir -p "$fresh/crds" "$fresh/rbac" "$fresh/machines" $files

$gen object paths=./api/...
${GO:-go} run ./hack/schema
$gen crd paths=./api/... output:crd:dir="$fresh/crds"
rm -rf $files/crds
cp -r "$fresh/crds" $files/ # their schemas type the machines, of which the roles are made
${GO:-go} run ./hack/rbac "$fresh/rbac" docs/operate/rights.md
rm -rf $files/rbac
cp -r "$fresh/rbac" $files/

# What the chart mounts into the managers is what is compiled into them.
rm -rf $files/machines
mkdir -p $files/machines
cp phases/*.yaml $files/machines/
cp resources/kinds.yaml $files/

# After the CRDs, whose schemas type the machines.
${GO:-go} run ./hack/machinedocs "$fresh/machines"
rm -rf docs/machines
cp -r "$fresh/machines" docs/
${GO:-go} run ./hack/actiondocs docs/extend/builtin-actions.md

# All commands of the plugin, with their help.
${GO:-go} test -count=1 ./cmd/kubectl-phasegate -run TestReferenceIsWhatHelpSays -update >/dev/null

# The list of metrics, on which the tests of the alerts rely, too.
${GO:-go} run ./hack/metricsdocs docs/operate/metrics.md

# The README of the chart: its values, with their comments.
(cd test/chart && ${GO:-go} tool helm-docs --chart-search-root ../../charts --sort-values-order file --ignore-non-descriptions --log-level warning)
