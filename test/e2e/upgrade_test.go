package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/harness"
	"github.com/phasegate/phasegate/test/scene"
)

// What the next version calls otherwise. In the program: two actions, which are on record as the
// releases of what the older version holds. In the machine file, besides them: a phase, an effect, a
// request and a step. Names that other code of the program compares stay as they are.
var (
	renamedActions = map[string]string{"UnlockV1": "OpenV1", "RestoreAPIService": "ReturnAPIService"}
	renamedInFile  = map[string]string{"Migrating": "CutOver", "v1Owners": "ownersOfV1", "gate-ahead": "pause-ahead", "name: retry": "name: again", "request.retry": "request.again"}
)

// rename exchanges names in a text; back does it the other way round.
func rename(text string, back bool, all ...map[string]string) string {
	var pairs []string
	for _, names := range all {
		for _, old := range slices.Sorted(maps.Keys(names)) {
			if back {
				pairs = append(pairs, names[old], old)
			} else {
				pairs = append(pairs, old, names[old])
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// nextManager builds the manager of the next version: the same sources, with other names.
func nextManager(t *testing.T) string {
	t.Helper()
	dir, overlay := t.TempDir(), struct{ Replace map[string]string }{map[string]string{}}
	for file, names := range map[string][]map[string]string{
		filepath.Join("phases", machineFile):                             {renamedActions, renamedInFile},
		filepath.Join("controllers", "datastoremigration", "program.go"): {renamedActions},
	} {
		data, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		text := rename(string(data), false, names...)
		if text == string(data) {
			t.Fatalf("%s has none of the names any more that the next version calls otherwise", file)
		}
		copied := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root(t), file)] = copied
	}
	data, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "manager")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/manager")
	cmd.Dir = root(t)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the next version: %v\n%s", err, said)
	}
	return program
}

// machineOf is the gated machine in the names of a version, with what the other version calls otherwise
// mapped to it.
func machineOf(t *testing.T, next, mapped bool) string {
	t.Helper()
	dir := gated(t)
	file := filepath.Join(dir, machineFile)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if next {
		data = []byte(rename(string(data), false, renamedActions, renamedInFile))
	}
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(data, m); err != nil {
		t.Fatal(err)
	}
	one := func(old, now string) map[string]string {
		if next {
			return map[string]string{old: now}
		}
		return map[string]string{now: old}
	}
	if mapped {
		m.Spec.Upgrade = &v1alpha1.Upgrade{PhaseMap: one("Migrating", "CutOver"), EffectMap: one("v1Owners", "ownersOfV1"),
			StepMap: one("gate-ahead", "pause-ahead"), RequestMap: one("retry", "again")}
	}
	if data, err = yaml.Marshal(m); err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A migration under way goes from one version of the program to the next and back, while it holds what
// both call otherwise, and gives everything back with either.
func TestUpgrade(t *testing.T) {
	next := nextManager(t)
	w := pristine(t)
	now, then, back := machineOf(t, false, false), machineOf(t, true, true), machineOf(t, false, true)
	run := func(t *testing.T, program, phases string) *harness.Process {
		t.Helper()
		return w.managerOf(t, program, managerAccount, "--phases-dir", phases)
	}
	inTurn(t, "copying ahead, up: the step goes on under its new name", func(t *testing.T) {
		p := run(t, "", now)
		w.start(t, scene.MigrationName, "ahead")
		before := w.awaitGate(t, scene.MigrationName, "ahead")
		w.stop(t, p)
		run(t, next, then)
		dm := w.awaitStatus(t, scene.MigrationName, "at the renamed step", func(dm *migrationv1.DatastoreMigration) bool {
			return dm.Status.Machine.Step == "pause-ahead" && dm.Status.Machine.Revision != before.Status.Machine.Revision
		})
		if dm.Status.Machine.Cursor != before.Status.Machine.Cursor || len(dm.Status.Machine.History) != len(before.Status.Machine.History) {
			t.Errorf("step %d after %d, history %v: the phase began anew", dm.Status.Machine.Cursor, before.Status.Machine.Cursor, dm.Status.Machine.History)
		}
		w.remove(t, scene.MigrationName)
		w.assertUntouched(t)
	})
	inTurn(t, "locked, up, and given back by the next version", func(t *testing.T) {
		p := run(t, "", now)
		w.start(t, scene.MigrationName, "parked")
		w.awaitGate(t, scene.MigrationName, "parked")
		w.stop(t, p)
		run(t, next, then)
		w.assertHolds(t, "CutOver", rename(strings.Join(held("apiService"), " "), false, renamedInFile))
		w.remove(t, scene.MigrationName)
		w.assertUntouched(t)
		w.assertNoStates(t)
	})
	inTurn(t, "locked, up, back, and given back by the older version", func(t *testing.T) {
		p := run(t, "", now)
		w.start(t, scene.MigrationName, "locked")
		w.awaitGate(t, scene.MigrationName, "locked")
		w.stop(t, p)
		p = run(t, next, then)
		w.assertHolds(t, "CutOver", strings.Join(held("v1Lock"), " "))
		w.annotate(t, scene.MigrationName, map[string]string{openGates: gatesBefore("parked")}) // the next version takes more
		w.assertHolds(t, "CutOver", rename(strings.Join(held("apiService"), " "), false, renamedInFile))
		w.stop(t, p)
		run(t, "", back)
		w.assertHolds(t, "Migrating", strings.Join(held("apiService"), " "))
		w.remove(t, scene.MigrationName)
		w.assertUntouched(t)
		w.assertNoStates(t)
	})
	inTurn(t, "locked, up without a map: it stands, and says what to do", func(t *testing.T) {
		p := run(t, "", now)
		w.start(t, scene.MigrationName, "locked")
		w.awaitGate(t, scene.MigrationName, "locked")
		w.stop(t, p)
		p = run(t, next, machineOf(t, true, false))
		w.awaitMessage(t, scene.MigrationName, "add it to spec.upgrade.phaseMap")
		w.assertHolds(t, "Migrating", strings.Join(held("v1Lock"), " "))
		w.stop(t, p)
		run(t, "", now)
		w.remove(t, scene.MigrationName)
		w.assertUntouched(t)
	})
}

// assertHolds waits until the state says so.
func (w *world) assertHolds(t *testing.T, phase, held string) {
	t.Helper()
	harness.Eventually(t, "the state to be in "+phase, soon, func() error {
		dm, err := w.Migration(t.Context(), scene.MigrationName)
		if err != nil {
			return err
		}
		return nilUnless(cmp.Equal([]string{phase, held}, []string{dm.Status.Machine.Phase, strings.Join(dm.Status.Machine.HeldNames(), " ")}),
			dm.Status.Machine.Phase+" holds "+strings.Join(dm.Status.Machine.HeldNames(), " "))
	})
}

func (w *world) stop(t *testing.T, p *harness.Process) {
	t.Helper()
	if err := p.Stop(soon); err != nil {
		t.Fatal(err)
	}
}
