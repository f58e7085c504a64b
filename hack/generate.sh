#!/usr/bin/env bash
# Writes everything that is generated: deepcopy methods and CRDs from api/, RBAC
# from the +kubebuilder:rbac markers in controllers/.
set -euo pipefail
cd "$(dirname "$0")/.."

files=charts/phasegate/files
gen=bin/tools/controller-gen
mkdir -p $files/crds $files/rbac

$gen object paths=./api/...
$gen crd paths=./api/... output:crd:dir=$files/crds
$gen rbac:roleName=phasegate-manager,fileName=manager.yaml paths=./controllers/... output:rbac:dir=$files/rbac
