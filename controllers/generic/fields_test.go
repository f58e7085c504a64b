package generic_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

// A machine shows fields of its own beside those of another program. They follow the phase, go with their entry in the file, and
// one that the CRD refuses does not hide the rest.
func fields(t *testing.T, b *bench) {
	b.crd(func(crd *apiextensionsv1.CustomResourceDefinition) {
		status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
		for name, kind := range map[string]string{"left": "integer", "of": "string", "stage": "string", "theirs": "string"} {
			status[name] = apiextensionsv1.JSONSchemaProps{Type: kind}
		}
	})
	withFields := func(text string) string { return file(t, "  phases:\n", "  status: "+text+"\n  phases:\n") }
	shows := func(want map[string]any) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("the object to show %v", want), func() error {
			obj, err := b.get("o")
			if err != nil {
				return err
			}
			got := map[string]any{}
			for _, name := range []string{"phase", "left", "of", "stage", "theirs", "dropped"} {
				if value, is, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", name); is {
					got[name] = value
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	b.put(withFields(`{left: 'self.spec.replicas - 1', of: 'self.spec.backup', stage: 'phase.name', dropped: '1'}`))
	b.create("o", map[string]any{"backup": "monday", "replicas": int64(3)})
	shows(map[string]any{"phase": "Restoring", "left": int64(2), "of": "monday", "stage": "Restoring"})

	obj, err := b.get("o")
	if err == nil {
		body := client.RawPatch(types.MergePatchType, []byte(`{"status":{"theirs":"mine"}}`))
		err = b.c.Status().Patch(t.Context(), obj, body, client.FieldOwner("another-program"))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.patch("o", `{"spec":{"replicas":null,"ready":true}}`) // left cannot be evaluated any more
	shows(map[string]any{"phase": "Restored", "of": "monday", "stage": "Restored", "theirs": "mine"})

	b.put(withFields(`{left: 'self.spec.backup', stage: 'phase.name'}`)) // of is gone, and left is no integer
	shows(map[string]any{"phase": "Restored", "theirs": "mine"})
	b.put(withFields(`{stage: '"at " + self.?status.?of.orValue("none") + self.?status.?stage.orValue("none")'}`))
	shows(map[string]any{"phase": "Restored", "stage": "at nonenone", "theirs": "mine"}) // what is shown is not read back
	b.remove("o")
}
