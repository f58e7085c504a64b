package processes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
)

const machineFile = "datastore-migration.yaml"

// beforeConverged is the name of a step, see machine. It is passed by a migration that
// says through.
const beforeConverged = "gate-verified"

var through = map[string]string{"faults.phasegate.dev/through": "yes"}

// machine is the shipped one with a gate as the last step before the point of no return,
// so that all that a migration does until then can be looked at, and taken back. dir is
// for --phases-dir.
func machine(t *testing.T) (dir string, compiled *fsm.Machine) {
	t.Helper()
	data, err := phases.Files.ReadFile(machineFile)
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(data, m); err != nil {
		t.Fatal(err)
	}
	locked := phase(t, m, "Migrating")
	locked.Steps = append(locked.Steps, v1alpha1.Step{Name: beforeConverged, Wait: "1h",
		If: `result.conflicts == 0 && self.metadata.?annotations[?"faults.phasegate.dev/through"].orValue("") != "yes"`})
	if data, err = yaml.Marshal(m); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, machineFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := machinestore.Load(machinestore.Options{Shipped: phases.Files, Dir: dir, Bindings: catalog.Bindings, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return dir, store.Of(datastoremigration.MachineName).InForce()
}

func phase(t *testing.T, m *v1alpha1.Machine, name string) *v1alpha1.Phase {
	t.Helper()
	i := slices.IndexFunc(m.Spec.Phases, func(p v1alpha1.Phase) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("the machine has no phase %s", name)
	}
	return &m.Spec.Phases[i]
}
