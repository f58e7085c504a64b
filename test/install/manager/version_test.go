package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// Calico 3.32.0 has a CRD of DatastoreMigration that serves v1beta1 only. Nothing can drive its objects, and a person is
// told so by the probe and by each object; the CRD of the chart over it, which serves both, is what helps.
func TestAVersionThatIsNotServed(t *testing.T) {
	text, ours, narrow := theCRDs(t)
	c := shared.Cluster(t).Client
	replaceCRD(t, c, narrow)
	t.Cleanup(func() { replaceCRD(t, c, ours) })

	m := start(t, admin(t), nil, "--leader-elect", "--leader-elect-namespace=default", "--leader-elect-lease-name=version", "--controllers=datastoremigration")
	m.awaitProbe(t, "/readyz?verbose", http.StatusServiceUnavailable, `\[\+\]machines ok`, `\[-\]datastoremigration failed: CRD datastoremigrations\.migration\.projectcalico\.org serves only v1beta1, not v1, which this manager needs`)
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "migration.projectcalico.org/v1beta1", "kind": "DatastoreMigration",
		"metadata": map[string]any{"name": "to-v3"}, "spec": map[string]any{"type": string(migrationv1.APIServerToCRDs)}}}
	harness.Eventually(t, "the API server serves v1beta1", func() error { return client.IgnoreAlreadyExists(c.Create(t.Context(), migration)) })
	harness.Eventually(t, "an Event on the object", func() error {
		events := &eventsv1.EventList{}
		if err := c.List(t.Context(), events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Name == "to-v3" && e.Reason == "VersionNotServed" {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(events.Items))
	})

	// What the check and the message say.
	apply := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &apply.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	m.awaitProbe(t, "/readyz?verbose", http.StatusOK, `\[\+\]machines ok`, `\[\+\]datastoremigration ok: runs for CRD`)
	harness.Eventually(t, "the migration is driven", func() error {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(migrationv1.GroupVersion.WithKind("DatastoreMigration"))
		if err := c.Get(t.Context(), types.NamespacedName{Name: "to-v3"}, now); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(now.Object, "status", "phase"); phase == "" {
			return errors.New("no phase")
		}
		return nil
	})
}

// theCRDs are that of the chart, as it is written and as it is read, and it with v1beta1 alone.
func theCRDs(t *testing.T) (text []byte, ours, narrow *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds", "migration.projectcalico.org_datastoremigrations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ours, narrow = &apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinition{}
	if err := errors.Join(yaml.Unmarshal(text, ours), yaml.Unmarshal(text, narrow)); err != nil {
		t.Fatal(err)
	}
	for _, v := range ours.Spec.Versions {
		if v.Name == "v1beta1" {
			v.Storage = true
			narrow.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v}
		}
	}
	return text, ours, narrow
}

// replaceCRD deletes a CRD with its objects and creates another one.
func replaceCRD(t *testing.T, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	ctx := context.Background() // also at the end of the test
	err := harness.Await(ctx, "the CRD is another one", harness.Patience, func(ctx context.Context) error {
		live := &apiextensionsv1.CustomResourceDefinition{}
		err := c.Get(ctx, client.ObjectKeyFromObject(crd), live)
		if apierrors.IsNotFound(err) {
			return c.Create(ctx, crd.DeepCopy())
		}
		if err != nil {
			return err
		}
		objects := &unstructured.UnstructuredList{}
		objects.SetAPIVersion(crd.Spec.Group + "/" + crd.Spec.Versions[0].Name)
		objects.SetKind(crd.Spec.Names.ListKind)
		if err := c.List(ctx, objects); err == nil {
			for i := range objects.Items { // no manager runs any more that would take it off
				objects.Items[i].SetFinalizers(nil)
				_ = c.Update(ctx, &objects.Items[i])
			}
		}
		return errors.Join(client.IgnoreNotFound(c.Delete(ctx, live)), errors.New("the old one is deleted"))
	})
	if err != nil {
		t.Fatal(err)
	}
}
