#!/usr/bin/env bash
# Applies our CRDs to the cluster of KUBECONFIG. That of MachineState is ours everywhere. Of
# DatastoreMigration and MCPServer there may be Calico's or ToolHive's: those are left as they
# are, as crds.install=auto of the chart does. With CRDS=always they are overwritten.
set -euo pipefail
cd "$(dirname "$0")/.."

kubectl=${KUBECTL:-bin/tools/kubectl}
# What only ours have, in the version that is stored.
ours='{.spec.versions[?(@.storage==true)].schema.openAPIV3Schema.properties.status.properties.machine.type}'

apply=()
for file in charts/phasegate/files/crds/*.yaml; do
	name=$(sed -n 's/^  name: //p' "$file" | head -n 1)
	if [[ ${CRDS:-auto} != always && $name != *.phasegate.dev && -n $($kubectl get crd "$name" --ignore-not-found -o name) ]] &&
		[[ -z $($kubectl get crd "$name" -o "jsonpath=$ours") ]]; then
		echo "left as it is: CRD $name, which is not ours (CRDS=always overwrites it)"
		continue
	fi
	apply+=(-f "$file")
done
$kubectl apply --server-side --force-conflicts "${apply[@]}"
# Where the API server has not written a condition yet, kubectl wait ends in an error at once.
until $kubectl wait --for=condition=Established --timeout=10s "${apply[@]}"; do
	((SECONDS < 60)) || exit 1
	sleep 1
done
