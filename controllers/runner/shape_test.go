package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// otherCRD is a CRD of another project for the same kind.
const otherCRD = `
metadata: {name: datastoremigrations.migration.projectcalico.org}
spec:
  group: migration.projectcalico.org
  names: {kind: DatastoreMigration, plural: datastoremigrations}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              phase: {type: string, enum: [Pending, Migrating, Failed]}
              message: {type: string}
              progress: {type: object, properties: {migrated: {type: integer}}}
              conditions:
                type: array
                maxItems: 3
                items:
                  type: object
                  properties: {type: {type: string}, status: {type: string}, reason: {type: string}, message: {type: string}, lastTransitionTime: {type: string, format: date-time}}
`

func readCRD(t *testing.T, data string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(data), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func TestFitView(t *testing.T) {
	ours, err := os.ReadFile(filepath.Join("..", "..", "charts", "phasegate", "files", "crds", "migration.projectcalico.org_datastoremigrations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type status = migrationv1.DatastoreMigrationStatus
	conflict := func(n int) (all []metav1.Condition) {
		for range n {
			all = append(all, metav1.Condition{Type: "Conflict", Status: "True", Reason: "R"})
		}
		return all
	}
	full := status{Phase: "Migrating", Message: "m", ObservedGeneration: 2, Lock: &migrationv1.Lock{Mode: migrationv1.LockEnforced},
		Progress: &migrationv1.Progress{Migrated: 3, Objects: "3/4"}, Conditions: conflict(1),
		Machine: v1alpha1.MachineStatus{Phase: "Migrating", Held: v1alpha1.Held("v1Lock"), History: []v1alpha1.Transition{{To: "Pending", At: metav1.NewMicroTime(time.Unix(1, 0))}}}}
	in := func(phase string) status { s := *full.DeepCopy(); s.Phase = phase; return s }
	pruned := func(phase, message string, conditions int) status {
		return status{Phase: phase, Message: message, Progress: &migrationv1.Progress{Migrated: 3}, Conditions: conflict(conditions)}
	}
	cases := map[string]struct {
		why, crd     string
		stored, view status
		want         status
	}{
		"ours":                {"our CRD keeps everything", string(ours), status{}, full, full},
		"other":               {"what the CRD does not know would be dropped, and would differ for ever", otherCRD, status{}, full, pruned("Migrating", "m", 3)},
		"unknown phase":       {"the API server would refuse the whole status", otherCRD, status{Phase: "Pending"}, in("Aborting"), pruned("Pending", "Aborting: m", 3)},
		"never had one":       {"there is no phase to leave", otherCRD, status{}, in("Aborting"), pruned("", "Aborting: m", 3)},
		"one of ours, before": {"our CRD was replaced while the object showed one of our phases", otherCRD, status{Phase: "RollingBack"}, in("Aborting"), pruned("", "Aborting: m", 3)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			shape, err := ShapeOf(readCRD(t, c.crd), "v1")
			if err != nil {
				t.Fatal(err)
			}
			stored, view := &migrationv1.DatastoreMigration{Status: c.stored}, &migrationv1.DatastoreMigration{Status: *c.view.DeepCopy()}
			spread := func(o *migrationv1.DatastoreMigration) { o.Status.Conditions = conflict(5) } // more than fit
			if err := fitView(shape, &migrationv1.DatastoreMigration{}, view, stored, spread); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, view.Status); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			again := view.DeepCopy()
			if err := fitView(shape, &migrationv1.DatastoreMigration{}, again, view, spread); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(view.Status.Phase, again.Status.Phase); diff != "" {
				t.Errorf("fitted again, it differs:\n%s", diff)
			}
		})
	}
}

func TestShapeOfRefuses(t *testing.T) {
	cases := map[string]struct{ why, version, old, replace, want string }{
		"another version": {"the machine asks for one that is not served", "v2", "", "", "has no version v2"},
		"no subresource":  {"the status would be written with the spec, and ours would be ignored", "v1", "    subresources: {status: {}}\n", "", "no status subresource"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ShapeOf(readCRD(t, strings.Replace(otherCRD, c.old, c.replace, 1)), c.version)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q: %s", err, c.want, c.why)
			}
		})
	}
}
