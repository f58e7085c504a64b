package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A whole migration with the CRDs of the oldest release that is supported: there CalicoNodeStatus has a status and no
// subresource for it, on neither side. Policies of a newer one fill in what v1 leaves out, some of new objects only:
// that needs no waiver, and stays.
func TestCalico332(t *testing.T) {
	dir := crds.Release("3.32")
	if dir == "" {
		t.Skipf("the CRDs of Calico 3.32 are not here: put them beside those of %s, in a directory with the suffix -3.32", crds.EnvDir)
	}
	set, err := crds.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := crds.ReadDir(filepath.Join(filepath.Dir(dir), "calico-admission-newer"))
	if err != nil {
		t.Fatal(err)
	}
	set.Admission = append(set.Admission, inV1(newer)...)
	set.Admission = append(set.Admission, filling("fill-order", "globalnetworkpolicies", `spec: Object.spec{order: 700.0}`, "CREATE")...)
	set.Admission = append(set.Admission, filling("fill-label", "globalnetworksets", `metadata: Object.metadata{labels: {"filled": "in"}}`, "CREATE", "UPDATE")...)
	w := own(t, setup.Options{Objects: append(fixture.Demo(1, 100), poor()...), CRDs: set})
	before := w.content(t)
	w.manager(t)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.await(t, setup.MigrationName, "Converged")
	assertSameContent(t, before, w.content(t))
	w.assertFilled(t, len(newer) > 0)
	in := map[string]any{}
	for _, group := range []string{"crd.projectcalico.org/v1", "projectcalico.org/v3"} {
		var list struct {
			Items []struct{ Status map[string]any }
		}
		w.do(t, json.Unmarshal([]byte(w.kubectl(t, "get", "--raw", "/apis/"+group+"/caliconodestatuses")), &list))
		in[group] = list.Items
	}
	if diff := cmp.Diff(in["crd.projectcalico.org/v1"], in["projectcalico.org/v3"]); diff != "" {
		t.Errorf("the status of CalicoNodeStatus (-v1 +v3):\n%s", diff)
	}
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "datastoremigration/"+setup.MigrationName)
}

// poor are v1 objects in which policies fill something in.
func poor() (objs []*unstructured.Unstructured) {
	for _, one := range []struct {
		kind string
		spec map[string]any
	}{
		{"IPPool", map[string]any{"cidr": "10.77.0.0/16"}},
		{"GlobalNetworkPolicy", map[string]any{"tier": "default", "selector": "all()"}},
		{"GlobalNetworkSet", map[string]any{"nets": []any{"10.0.0.0/8"}}},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": one.spec}}
		obj.SetAPIVersion(resources.V1Group + "/v1")
		obj.SetKind(one.kind)
		obj.SetName("poor")
		objs = append(objs, obj)
	}
	return objs
}

// assertFilled checks that copies, and objects that are created in v3, have the same from admission, and that nobody has
// taken it out again.
func (w *world) assertFilled(t *testing.T, newer bool) {
	t.Helper()
	type filled struct{ BlockSize, Order, Label any }
	of := func(kind, name string) filled {
		obj := w.get(t, resources.V3Group+"/v3", kind, name)
		if obj.GetGeneration() != 1 {
			t.Errorf("%s %s was written again: generation %d", kind, name, obj.GetGeneration())
		}
		spec, _ := obj.Object["spec"].(map[string]any)
		return filled{spec["blockSize"], spec["order"], obj.GetLabels()["filled"]}
	}
	for _, obj := range poor() {
		direct := obj.DeepCopy()
		direct.SetAPIVersion(resources.V3Group + "/v3")
		direct.SetName("direct")
		if obj.GetKind() == "IPPool" {
			direct.Object["spec"].(map[string]any)["cidr"] = "10.78.0.0/16"
		}
		remove := w.create(t, direct)
		want, got := of(obj.GetKind(), "direct"), of(obj.GetKind(), "poor")
		if diff := cmp.Diff(want, got); diff != "" || want == (filled{Label: ""}) && (newer || obj.GetKind() != "IPPool") {
			t.Errorf("%s: what admission fills in is %+v; the copy (-new object +copy):\n%s", obj.GetKind(), want, diff)
		}
		remove()
	}
}

// inV1 has admission policies in the version that every server of ours has.
func inV1(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, obj := range objs {
		obj.SetAPIVersion("admissionregistration.k8s.io/v1")
	}
	return objs
}

// filling is a policy that adds to objects of v3, and its binding.
func filling(name, plural, fields string, operations ...any) []*unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{"kind": "MutatingAdmissionPolicy", "spec": map[string]any{
		"failurePolicy": "Fail", "reinvocationPolicy": "Never",
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{resources.V3Group}, "apiVersions": []any{"v3"}, "operations": operations, "resources": []any{plural},
		}}},
		"matchConditions": []any{map[string]any{"name": "poor", "expression": `object.metadata.name in ["poor", "direct"]`}},
		"mutations":       []any{map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": "Object{" + fields + "}"}}},
	}}}
	policy.SetName(name)
	binding := &unstructured.Unstructured{Object: map[string]any{"kind": "MutatingAdmissionPolicyBinding", "spec": map[string]any{"policyName": name}}}
	binding.SetName(name)
	return inV1([]*unstructured.Unstructured{policy, binding})
}
