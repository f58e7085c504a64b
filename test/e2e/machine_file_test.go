package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/harness"
)

const machineFile = "datastore-migration.yaml"

// edit changes a copy of the shipped machine.
type edit func(t *testing.T, spec *v1alpha1.MachineSpec)

// machine writes a changed copy of the machine and returns its directory, for --phases-dir.
func machine(t *testing.T, edits ...edit) string {
	t.Helper()
	m := &v1alpha1.Machine{}
	readYAML(t, filepath.Join(root(t), "phases", machineFile), m)
	for _, change := range edits {
		change(t, &m.Spec)
	}
	data, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, machineFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// with is the machine with an example of docs/extend applied to it; the first of the edits.
func with(diff string) edit {
	return func(t *testing.T, spec *v1alpha1.MachineSpec) {
		t.Helper()
		m := &v1alpha1.Machine{}
		readYAML(t, filepath.Join(patched(t, filepath.Join("phases", machineFile), diff), machineFile), m)
		*spec = m.Spec
	}
}

// patched copies a shipped file and applies examples of docs/extend to it, as the page says. It returns the
// directory of the copy.
func patched(t *testing.T, file string, diffs ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	result := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(result, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, diff := range diffs {
		cmd := exec.Command("git", "apply", "-p0", example(t, diff)) // not every machine has patch
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("apply %s to %s: %v\n%s", diff, file, err, said)
		}
	}
	return dir
}

// example is the path of a file that docs/extend shows.
func example(t *testing.T, file string) string {
	t.Helper()
	return filepath.Join(root(t), "docs", "extend", "examples", filepath.FromSlash(file))
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// inPhase changes one phase. A name that the machine does not have ends the test: an edit that missed
// would test nothing.
func inPhase(name string, change func(t *testing.T, p *v1alpha1.Phase)) edit {
	return func(t *testing.T, spec *v1alpha1.MachineSpec) {
		t.Helper()
		i := slices.IndexFunc(spec.Phases, func(p v1alpha1.Phase) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("the machine has no phase %s", name)
		}
		change(t, &spec.Phases[i])
	}
}

// underTheLock is a machine that copies nothing ahead: as where the side door is refused.
func underTheLock(_ *testing.T, spec *v1alpha1.MachineSpec) {
	ahead := []string{"OpenSideDoor", "CloseSideDoor"}
	spec.Effects = slices.DeleteFunc(spec.Effects, func(e v1alpha1.Effect) bool { return slices.Contains(ahead, e.Acquire) })
	for i := range spec.Recover {
		spec.Recover[i].Holds = slices.DeleteFunc(spec.Recover[i].Holds, func(effect string) bool { return effect == "sideDoor" })
	}
	spec.Invariants = slices.DeleteFunc(spec.Invariants, func(i v1alpha1.Named) bool { return strings.Contains(i.Expr, `"sideDoor"`) })
	for i := range spec.Phases {
		p := &spec.Phases[i]
		p.Steps = slices.DeleteFunc(p.Steps, func(s v1alpha1.Step) bool {
			return slices.Contains(ahead, s.Action) || strings.HasPrefix(s.If, `"sideDoor" in held`)
		})
		for j := range p.Steps {
			if p.Steps[j].Name == "Validate" {
				p.Steps[j].If = "" // nobody else does before the lock
			}
		}
	}
}

// inStep changes the last step of a phase that runs an action under its own name.
func inStep(phase, action string, change func(*v1alpha1.Step)) edit {
	return inPhase(phase, func(t *testing.T, p *v1alpha1.Phase) {
		t.Helper()
		change(&p.Steps[stepIndex(t, p, action)])
	})
}

func stepIndex(t *testing.T, p *v1alpha1.Phase, action string) int {
	t.Helper()
	for i, s := range slices.Backward(p.Steps) {
		if s.Action == action && s.Name == "" {
			return i
		}
	}
	t.Fatalf("phase %s has no step with action %s", p.Name, action)
	return 0
}

// quickly shortens what is long for the sake of real clusters: they have several API servers, which hear of
// the fence at different times.
func quickly(t *testing.T, spec *v1alpha1.MachineSpec) {
	t.Helper()
	for action, with := range map[string]map[string]any{
		"BlockV1Writes": {"settle": "500ms", "watchFrom": 20},
		"Drain":         {"quiet": "100ms", "atMost": "2s"},
	} {
		inStep("Migrating", action, func(s *v1alpha1.Step) { s.With = with })(t, spec)
	}
}

// openGates is the annotation that lists the open gates of a gated machine, each between commas.
const openGates = "e2e.phasegate.dev/open"

// places are the steps behind which there is a gate, in the order in which a migration comes by; without an
// action it is the begin of the phase. The last is passed only without conflicts, which lead elsewhere.
var places = []struct{ gate, phase, action, when string }{
	{"pending", "Pending", "", "true"},
	{"planned", "Pending", "Plan", "true"},
	{"compared", "Pending", "DetectConflicts", "true"},
	{"ahead", "Pending", "CopyResources", "result.conflicts == 0"},
	{"begin", "Migrating", "", "true"},
	{"fenced", "Migrating", "BlockV1Writes", "true"},
	{"locked", "Migrating", "LockV1", "true"},
	{"drained", "Migrating", "Drain", "true"},
	{"parked", "Migrating", "DisableAPIService", "true"},
	{"served", "Migrating", "AwaitV3Served", "true"},
	{"v3locked", "Migrating", "LockV3", "true"},
	{"copied", "Migrating", "CopyResources", "true"},
	{"remapped", "Migrating", "RemapOwners", "true"},
	{"verified", "Migrating", "Verify", "result.conflicts == 0"},
}

// nowhere is behind the last gate.
const nowhere = ""

func gateStep(gate string) string    { return "gate-" + gate }
func gateMessage(gate string) string { return "at gate " + gate }

// gated is a machine that stops wherever a test wants it to. A gate is a step that waits for an hour, unless
// the migration's annotation says that it is open.
func gated(t *testing.T, more ...edit) string {
	t.Helper()
	edits := append([]edit{quickly}, more...)
	for _, place := range places {
		edits = append(edits, inPhase(place.phase, func(t *testing.T, p *v1alpha1.Phase) {
			t.Helper()
			at := 0
			if place.gate == "ahead" && !slices.ContainsFunc(p.Steps, func(s v1alpha1.Step) bool { return s.Action == place.action }) {
				return // underTheLock
			}
			if place.action != "" {
				at = 1 + stepIndex(t, p, place.action)
			}
			p.Steps = slices.Insert(p.Steps, at, v1alpha1.Step{
				Name: gateStep(place.gate), Wait: "1h", Message: gateMessage(place.gate),
				If: fmt.Sprintf(`%s && !self.metadata.?annotations[?"%s"].orValue("").contains(",%s,")`, place.when, openGates, place.gate),
			})
		}))
	}
	return machine(t, edits...)
}

// gatesBefore is the annotation's value with which a migration stops at a gate.
func gatesBefore(gate string) string {
	open := ","
	for _, p := range places {
		if p.gate == gate {
			return open
		}
		open += p.gate + ","
	}
	return open
}
