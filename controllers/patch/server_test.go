package patch_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/test/support/harness"
)

type thing = unstructured.Unstructured

var thingKind = schema.GroupVersionKind{Group: "patch.phasegate.dev", Version: "v1", Kind: "Thing"}

// thingCRD has a status subresource and a default that only the server knows.
func thingCRD() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}
	spec := *open.DeepCopy()
	spec.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"defaulted": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"by the server"`)}},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + thingKind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: thingKind.Group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: thingKind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: thingKind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": open},
				}},
			}},
		},
	}
}

func named(name string) *thing {
	obj := &thing{}
	obj.SetGroupVersionKind(thingKind)
	obj.SetName(name)
	return obj
}

// set is a mutation of one field.
func set(value any, path ...string) func(*thing) {
	return func(o *thing) {
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err) // the path leads through a scalar: the test is wrong
		}
	}
}

// content is an object without what the server adds to its metadata.
func content(o *thing) map[string]any {
	return map[string]any{
		"annotations": o.GetAnnotations(), "finalizers": o.GetFinalizers(),
		"spec": o.Object["spec"], "status": o.Object["status"],
	}
}

// things brings up an API server that serves things.
func things(t *testing.T) client.Client {
	t.Helper()
	c := harness.ForTest(t, harness.Options{Without: []string{"fakenodes", "scheduler", "controller-manager"}}).Client
	crd := thingCRD()
	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), crd, client.Preconditions{UID: &crd.UID}); err != nil {
			t.Error(err)
		}
	})
	return c
}

// create stores a thing of its own for a test.
func create(t *testing.T, c client.Client, spec, status map[string]any) *thing {
	t.Helper()
	obj := named("")
	obj.SetGenerateName("thing-")
	obj.Object["spec"] = spec
	harness.Eventually(t, "a thing to be created", func() error { return c.Create(t.Context(), obj) })
	if err := statusWrite(t.Context(), c, obj, func(o *thing) { o.Object["status"] = status }); err != nil {
		t.Fatal(err)
	}
	return obj
}

type write func(context.Context, client.Client, *thing, func(*thing)) error

var (
	specWrite  write = patch.MutateAndPatchSpec[*thing]
	statusSwap write = patch.MutateAndSwapStatus[*thing]
	noWrite    write = func(context.Context, client.Client, *thing, func(*thing)) error { return nil }
)

// statusWrite is how another program writes a status.
func statusWrite(ctx context.Context, c client.Client, obj *thing, mutate func(*thing)) error {
	before := obj.DeepCopy()
	mutate(obj)
	return c.Status().Patch(ctx, obj, client.MergeFrom(before))
}

// stored is a thing that was created with "0" in all four fields.
func stored(ours, theirs, phase, url string) map[string]any {
	return map[string]any{
		"annotations": map[string]string(nil), "finalizers": []string(nil),
		"spec":   map[string]any{"defaulted": "by the server", "ours": ours, "theirs": theirs},
		"status": map[string]any{"phase": phase, "url": url},
	}
}

type twoWriters struct {
	why        string
	theirs     write
	theirEdit  func(*thing)
	ours       write
	edit       func(*thing)
	conflict   bool
	unsent     bool // nothing to send, so nothing is learned of their write
	wantStored map[string]any
}

var twoWritersCases = map[string]twoWriters{
	"MutateAndPatchSpec_PreservesDisjointSpecFields": {
		why:    "the fields that we did not touch survive",
		theirs: noWrite, ours: specWrite, edit: set("1", "spec", "ours"),
		wantStored: stored("1", "0", "0", "0"),
	},
	"MutateAndPatchSpec_Propagates409Conflict": {
		why:    "what we decided on is not true any more",
		theirs: specWrite, theirEdit: set("1", "spec", "theirs"),
		ours: specWrite, edit: set("1", "spec", "ours"), conflict: true,
		wantStored: stored("0", "1", "0", "0"),
	},
	"MutateAndPatchSpec_NoOpMutateStillPatches": {
		why:    "an empty patch is a question: is it still as I read it?",
		theirs: statusWrite, theirEdit: set("1", "status", "url"),
		ours: specWrite, edit: func(*thing) {}, conflict: true,
		wantStored: stored("0", "0", "0", "1"),
	},
	"MutateAndSwapStatus_ReassigningReadValueIsNoop": {
		why:    "the value that was read is on both sides of the diff, so theirs stays",
		theirs: statusWrite, theirEdit: set("theirs", "status", "phase"),
		ours: statusSwap, edit: set("0", "status", "phase"), unsent: true,
		wantStored: stored("0", "0", "theirs", "0"),
	},
	"MutateAndSwapStatus_AppliesMutation": {
		why:    "the ordinary transition",
		theirs: noWrite, ours: statusSwap, edit: set("1", "status", "phase"),
		wantStored: stored("0", "0", "1", "0"),
	},
	"MutateAndSwapStatus_Propagates409Conflict": {
		why:    "two leaders must not both take a transition",
		theirs: statusWrite, theirEdit: set("1", "status", "phase"),
		ours: statusSwap, edit: set("2", "status", "phase"), conflict: true,
		wantStored: stored("0", "0", "1", "0"),
	},
}

// run writes to an object that somebody else may have written to since we read it.
func (tc twoWriters) run(t *testing.T, c client.Client) {
	obj := create(t, c, map[string]any{"ours": "0", "theirs": "0"}, map[string]any{"phase": "0", "url": "0"})
	if err := tc.theirs(t.Context(), c, obj.DeepCopy(), tc.theirEdit); err != nil {
		t.Fatalf("their write: %v", err)
	}
	before := obj.DeepCopy()
	err := tc.ours(t.Context(), c, obj, tc.edit)
	if (err != nil) != tc.conflict || apierrors.IsConflict(err) != tc.conflict {
		t.Errorf("%s: error = %v, want a conflict: %v", tc.why, err, tc.conflict)
	}

	now := named(obj.GetName())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(tc.wantStored, content(now)); d != "" {
		t.Errorf("%s: stored (-want +got):\n%s", tc.why, d)
	}
	wantInMemory := now
	if tc.conflict || tc.unsent {
		wantInMemory = before
	}
	if d := cmp.Diff(wantInMemory, obj); d != "" {
		t.Errorf("%s: in memory (-want +got):\n%s", tc.why, d)
	}
}

func TestOnAPIServer(t *testing.T) {
	c := things(t)
	for name, tc := range twoWritersCases {
		t.Run(name, func(t *testing.T) { tc.run(t, c) })
	}
}
