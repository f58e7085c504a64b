package processes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/resources"
)

// Where the admission plugin OwnerReferencesPermissionEnforcement runs, as on OpenShift, an account needs the right to delete
// an object of which it changes the owners. What is missing is said before the lock, and nothing else is missing: references
// that block the deletion of their owner come back after an abort, and in v3.
func TestAnAdmissionPluginThatGuardsOwners(t *testing.T) {
	w := newWorld(t, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
	t.Cleanup(func() {
		if err := w.Setup.Close(); err != nil {
			t.Log(err)
		}
	})
	w.shell(t, `
		kubectl create -f - <<EOF
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: owner}
spec: {order: 500}
EOF
		kubectl get tiers.crd.projectcalico.org owner -o jsonpath='{.metadata.uid}' > uid
		owner="[{apiVersion: crd.projectcalico.org/v1, kind: Tier, name: owner, uid: $(cat uid), blockOwnerDeletion: true}]"
		kubectl create -f - <<EOF
apiVersion: v1
kind: ConfigMap
metadata: {namespace: default, name: owned, ownerReferences: $owner}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkSet
metadata: {name: owned, ownerReferences: $owner}
spec: {nets: [10.99.0.0/16]}
EOF`)
	w.before = w.look(t)
	before := w.owners(t, resources.V1Group)
	rules := []rbacv1.PolicyRule{rbac.Rule("patch", "", "configmaps")} // as the value dependents.patch of the chart grants it
	w.grant(t, rules...)
	dir, m := machine(t)
	w.manager(t, "--phases-dir", dir)
	w.start(t, nil)
	w.refuses(t, "ConfigMap default/owned")
	rules = append(rules, rbac.Rule("delete", "", "configmaps"))
	w.grant(t, rules...)
	w.refuses(t, "GlobalNetworkSet /owned")
	w.grant(t, append(rules, rbac.Rule("delete", resources.V1Group, "*"))...)
	w.until(t, "the gate", atGate(beforeConverged))
	w.giveBack(t, m)
	if diff := cmp.Diff(before, w.owners(t, resources.V1Group)); diff != "" {
		t.Errorf("owners after the abort (-want +got):\n%s", diff)
	}

	w.start(t, through)
	w.until(t, "v3 to be open", func(dm *migration) bool {
		return dm != nil && dm.Status.Phase == "Converged" && !dm.Status.Machine.IsHeld("dependents")
	})
	want := []string{"Tier owner, blocks: true", "Tier owner, blocks: true"}
	if diff := cmp.Diff(want, w.owners(t, resources.V3Group)); diff != "" {
		t.Errorf("owners in v3 (-want +got):\n%s", diff)
	}
}

// refuses waits until the migration says which object may not be detached.
func (w *world) refuses(t *testing.T, what string) {
	t.Helper()
	dm := w.until(t, what+" to be refused", func(dm *migration) bool {
		return dm != nil && strings.Contains(dm.Status.Message, what+" cannot be detached from its owner in Calico, a dry run was refused")
	})
	if dm.Status.Machine.IsHeld("v1Lock") {
		t.Errorf("v1 is locked: %s", dm.Status.Message)
	}
}

// owners are those of the objects of this test that are in a group of Calico.
func (w *world) owners(t *testing.T, group string) (owners []string) {
	t.Helper()
	set, cm := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	set.SetAPIVersion(group + "/" + map[string]string{resources.V1Group: resources.V1Version, resources.V3Group: resources.V3Version}[group])
	set.SetKind("GlobalNetworkSet")
	cm.SetAPIVersion("v1")
	cm.SetKind("ConfigMap")
	for obj, key := range map[*unstructured.Unstructured]client.ObjectKey{set: {Name: "owned"}, cm: {Namespace: "default", Name: "owned"}} {
		if err := w.Client.Get(t.Context(), key, obj); err != nil {
			t.Fatal(err)
		}
		for _, ref := range obj.GetOwnerReferences() {
			if strings.HasPrefix(ref.APIVersion, group+"/") {
				blocks := "no"
				if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
					blocks = "true"
				}
				owners = append(owners, ref.Kind+" "+ref.Name+", blocks: "+blocks)
			}
		}
	}
	return owners
}
