package api_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

const system = "phasegate-system"

// render is what `helm template` makes of the chart with a file of values.
func render(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	helm, err := harness.Binary(filepath.Join("tools", "helm"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), helm, "template", "phasegate", filepath.Join(root, "charts", "phasegate"),
		"--namespace", system, "--values", values, "--api-versions", "monitoring.coreos.com/v1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v: %s", err, said.String())
	}
	var objects []*unstructured.Unstructured
	for _, text := range bytes.Split(out, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if o.GetKind() != "" {
			objects = append(objects, o)
		}
	}
	return objects
}

func named(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName(name)
	return u
}

// Every object that the chart makes, the API server takes: its validation, the CEL
// of policies and the schema of CRDs, and not one unknown field.
func TestServerTakesTheChart(t *testing.T) {
	c := shared.Cluster(t).Client
	for _, namespace := range []string{system, "calico-system"} { // of the release, and of the backup's role
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), named(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, namespace))); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "charts", "phasegate", "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no values: %v", err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), "-values.yaml"), func(t *testing.T) {
			for _, o := range render(t, file) {
				if o.GroupVersionKind().Group == "monitoring.coreos.com" {
					continue // not served here; test/chart has their types
				}
				options := []client.ApplyOption{client.ForceOwnership, client.FieldOwner("helm")}
				if o.GetKind() != "ServiceAccount" { // without which no pod is admitted
					options = append(options, client.DryRunAll)
				}
				if err := strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), options...); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// The CRD of DatastoreMigration cannot be deleted with the migrations in it, and can without.
func TestDeletionGuard(t *testing.T) {
	c := shared.Cluster(t).Client
	for _, o := range render(t, filepath.Join("..", "..", "..", "charts", "phasegate", "ci", "default-values.yaml")) {
		if o.GroupVersionKind().Group == "admissionregistration.k8s.io" {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Delete(context.Background(), o); err != nil {
					t.Error(err)
				}
			})
		}
	}
	migration := named(migrationv1.GroupVersion.WithKind("DatastoreMigration"), "v1-to-v3")
	migration.Object["spec"] = map[string]any{"type": "APIServerToCRDs"}
	if err := c.Create(t.Context(), migration); err != nil {
		t.Fatal(err)
	}
	crdKind := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	remove := func(name string) error { return c.Delete(t.Context(), named(crdKind, name), client.DryRunAll) }
	harness.Eventually(t, "the guard to deny", func() error {
		err := remove(migrationv1.CRDName)
		if err == nil {
			return errors.New("the CRD could be deleted")
		}
		for _, part := range []string{"DatastoreMigration v1-to-v3 exists", "kubectl delete datastoremigration v1-to-v3,"} {
			if !strings.Contains(err.Error(), part) {
				return harness.Permanent(errors.New("the refusal does not say " + part + " but: " + err.Error()))
			}
		}
		return nil
	})
	if err := remove(v1beta1.CRDName); err != nil {
		t.Errorf("another CRD cannot be deleted: %v", err)
	}
	if err := c.Delete(t.Context(), migration); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the CRD to be free", func() error { return remove(migrationv1.CRDName) })
}
