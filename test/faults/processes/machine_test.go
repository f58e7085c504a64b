package processes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/phases"
)

const machineFile = "datastore-migration.yaml"

// The gates of the machine, by the names of their steps. The first is closed unless the
// migration says through, the second open unless it says stay.
const (
	beforeConverged = "gate-verified"
	beforeCleanUp   = "gate-cleanup"
)

var (
	through = map[string]string{"faults.phasegate.dev/through": "yes"}
	stay    = map[string]string{"faults.phasegate.dev/through": "yes", "faults.phasegate.dev/stay": "yes"}
)

// machine writes the shipped machine with two gates in it, and returns the directory for
// --phases-dir. The first is the last step before the point of no return, so that all that
// a migration does until then can be looked at, and taken back; the second is before the
// clean-up, after which a cluster is of no use for another run.
func machine(t *testing.T) string {
	t.Helper()
	data, err := phases.Files.ReadFile(machineFile)
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(data, m); err != nil {
		t.Fatal(err)
	}
	m.Spec.Phases = slices.Clone(m.Spec.Phases)
	locked, last := phase(t, m, "Migrating"), phase(t, m, "CleaningUp")
	locked.Steps = append(locked.Steps, v1alpha1.Step{Name: beforeConverged, Wait: "1h",
		If: `result.conflicts == 0 && self.metadata.?annotations[?"faults.phasegate.dev/through"].orValue("") != "yes"`})
	last.Steps = slices.Insert(last.Steps, 0, v1alpha1.Step{Name: beforeCleanUp, Wait: "1h",
		If: `self.metadata.?annotations[?"faults.phasegate.dev/stay"].orValue("") == "yes"`})
	if data, err = yaml.Marshal(m); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, machineFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func phase(t *testing.T, m *v1alpha1.Machine, name string) *v1alpha1.Phase {
	t.Helper()
	i := slices.IndexFunc(m.Spec.Phases, func(p v1alpha1.Phase) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("the machine has no phase %s", name)
	}
	return &m.Spec.Phases[i]
}
