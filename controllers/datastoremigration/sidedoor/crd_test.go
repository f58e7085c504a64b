package sidedoor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// doorCRD is a v3 CRD as Calico ships it, but for its schema.
func doorCRD(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "tiers.projectcalico.org"}}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v2", Served: true, Schema: schemaSaying("old")},
		{Name: resources.V3Version, Served: true, Storage: true, Schema: schemaSaying("new")},
	}
	crd.Status.StoredVersions = []string{resources.V3Version}
	if change != nil {
		change(crd)
	}
	return crd
}

func schemaSaying(text string) *apiextensionsv1.CustomResourceValidation {
	return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Description: text}}
}

func doorSaying(text string) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: migrationv1.SideDoorVersion, Served: true, Schema: schemaSaying(text)}
}

// patchedCRD is the CRD after a server has applied what decide says, again and again.
func patchedCRD(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, decide func(*apiextensionsv1.CustomResourceDefinition) []Op) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd.DeepCopy()).Build()
	if err := Change(t.Context(), c, crd.Name, decide); err != nil {
		t.Fatal(err)
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), out); err != nil {
		t.Fatal(err)
	}
	out.ResourceVersion, out.TypeMeta = "", crd.TypeMeta
	return out
}

func TestSideDoorOfACRD(t *testing.T) {
	type crd = apiextensionsv1.CustomResourceDefinition
	marked := map[string]string{migrationv1.AnnotationSideDoor: "me"}
	open := func(c *crd) { c.Annotations, c.Spec.Versions = marked, append(c.Spec.Versions, doorSaying("new")) }
	nonStructural := func(c *crd) {
		c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue}}
	}
	others := func(c *crd) { c.Annotations = map[string]string{"a": "b"} }
	gone := func(c *crd) { open(c); c.Annotations = map[string]string{migrationv1.AnnotationSideDoor: "it"} }
	cases := map[string]struct {
		why    string
		before func(*crd)
		opened func(*crd) // nil: refused, and left as it was
		says   string
		// closed is it after both, alone where it was never opened; nil: as Calico ships it.
		closed, alone func(*crd)
	}{
		"untouched": {why: "one version more, with v3's schema, and the mark; nothing afterwards", opened: open},
		"open":      {why: "a second time writes nothing", before: open, opened: open},
		"annotated": {why: "what others have written stays", before: others, closed: others, alone: others,
			opened: func(c *crd) {
				open(c)
				c.Annotations = map[string]string{"a": "b", migrationv1.AnnotationSideDoor: "me"}
			}},
		"only the mark is left":       {why: "the owner has applied the CRD again", before: func(c *crd) { c.Annotations = marked }, opened: open},
		"only the version is left":    {why: "somebody has removed the annotation", before: func(c *crd) { open(c); c.Annotations = nil }, opened: open},
		"of a migration that is gone": {why: "it is taken over, but not taken away by who has not opened it", before: gone, opened: open, alone: gone},
		"of an older schema": {why: "what it lets in must be what v3 lets in", opened: open, before: func(c *crd) {
			c.Annotations = marked
			c.Spec.Versions = append([]apiextensionsv1.CustomResourceDefinitionVersion{doorSaying("older")}, c.Spec.Versions...)
		}},
		"somebody else's version": {why: "it is not ours to use or to remove", before: func(c *crd) { c.Spec.Versions = append(c.Spec.Versions, doorSaying("theirs")) },
			says: "of another program"},
		"converted by a webhook": {why: "the webhook would be asked for a version that it does not know",
			before: func(c *crd) {
				c.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
			}, says: "by a webhook"},
		"large":          {why: "etcd would refuse it", before: func(c *crd) { c.Spec.Versions[1].Schema = schemaSaying(strings.Repeat("x", maxSize/2)) }, says: "bytes"},
		"not structural": {why: "such a schema is not served in a new version", before: nonStructural, says: "not structural"},
		"without v3":     {why: "there is nothing to open", before: func(c *crd) { c.Spec.Versions = c.Spec.Versions[:1] }, says: "has no version v3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, refusal := doorCRD(c.before), ""
			opened := patchedCRD(t, before, func(crd *crd) (ops []Op) {
				ops, refusal = Open(crd, "me")
				return ops
			})
			if c.says != "" {
				c.opened, c.closed, c.alone = c.before, c.before, c.before
			}
			if (refusal == "") != (c.says == "") || !strings.Contains(refusal, c.says) {
				t.Errorf("refused because it %q, want %q: %s", refusal, c.says, c.why)
			}
			closed := func(crd *crd) []Op { return Close(crd, "me") }
			for what, got := range map[string][2]*crd{
				"opened":            {doorCRD(c.opened), opened},
				"opened and closed": {doorCRD(c.closed), patchedCRD(t, opened, closed)},
				"closed alone":      {doorCRD(c.alone), patchedCRD(t, before, closed)},
			} {
				if diff := cmp.Diff(got[0], got[1], cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, %s (-want +got):\n%s", what, c.why, diff)
				}
			}
		})
	}
}

// Who applies the CRD on the server's side afterwards meets no other owner of its versions.
func TestSideDoorLeavesNoOwner(t *testing.T) {
	crd := doorCRD(nil)
	crd.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager}, {Manager: "kubectl"}, {Manager: manager, Subresource: "status"}}
	want := []Op{{Op: "replace", Path: "/metadata/resourceVersion", Value: ""}, {Op: "remove", Path: "/metadata/managedFields/2"}, {Op: "remove", Path: "/metadata/managedFields/0"}}
	if diff := cmp.Diff(want, Close(crd, "me")); diff != "" {
		t.Errorf("once the door is gone (-want +got):\n%s", diff)
	}
	crd.Annotations = map[string]string{migrationv1.AnnotationSideDoor: "it"}
	if got := Close(crd, "me"); got != nil {
		t.Errorf("the door of another migration, which has the same field manager, is touched: %v", got)
	}
}
