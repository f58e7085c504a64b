package e2e

import (
	"encoding/json"
	"fmt"
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
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What the next version of the program calls otherwise. Each kind of name of a machine file is there, and of
// effects each way in which the ledger may be out of date: v1Owners has another name, apiService another
// release, and v1Lock both. Go knows none of them but the actions.
var (
	renamedPhases   = map[string]string{"Migrating": "CutOver"}
	renamedEffects  = map[string]string{"v1Lock": "lockOfV1", "v1Owners": "ownersOfV1"}
	renamedSteps    = map[string]string{"Validate": "ValidatePlan", "gate-ahead": "pause-ahead"}
	renamedRequests = map[string]string{"retry": "again"}
	renamedActions  = map[string]string{"UnlockV1": "OpenV1", "RestoreAPIService": "ReturnAPIService"}
)

// inFile are the places of the names that are words of the format, too.
func inFile(names map[string]string) map[string]string {
	all := map[string]string{}
	for old, now := range names {
		for _, place := range []string{"name: ", "request."} {
			all[place+old] = place + now
		}
	}
	return all
}

// inCode are names as Go has them.
func inCode(names map[string]string) map[string]string {
	all := map[string]string{}
	for old, now := range names {
		all[`"`+old+`"`] = `"` + now + `"`
	}
	return all
}

// renamed is a text as the next version has it.
func renamed(text string, all ...map[string]string) string {
	var pairs []string
	for _, names := range all {
		for old, now := range names {
			pairs = append(pairs, old, now)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func renamedFile(text string) string {
	return renamed(text, renamedPhases, renamedEffects, inFile(renamedSteps), inFile(renamedRequests))
}

// mapped gives a machine file the maps from the names of the other version to those of its own, as
// docs/operate/upgrade.md has it: up in the file of the next version, back for a rollback.
func mapped(t *testing.T, text string) string {
	t.Helper()
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	next := strings.Contains(text, "name: "+renamedPhases["Migrating"])
	to := func(names map[string]string) map[string]string {
		all := map[string]string{}
		for old, now := range names {
			if !next {
				old, now = now, old
			}
			if strings.Contains(text, "name: "+now) { // the shipped file has no gates
				all[old] = now
			}
		}
		return all
	}
	m.Spec.Upgrade = &v1alpha1.Upgrade{PhaseMap: to(renamedPhases), EffectMap: to(renamedEffects), StepMap: to(renamedSteps), RequestMap: to(renamedRequests)}
	data, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// nextManager builds the manager of the next version: the same sources, with other names.
func nextManager(t *testing.T) string {
	t.Helper()
	dir, overlay := t.TempDir(), struct{ Replace map[string]string }{map[string]string{}}
	replace := func(file string, change func(string) string) {
		old := textOf(t, file)
		next, copied := change(old), filepath.Join(dir, filepath.Base(file))
		if next == old {
			t.Fatalf("%s has none of the names any more that the next version calls otherwise", file)
		}
		if err := os.WriteFile(copied, []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root(t), file)] = copied
	}
	replace(filepath.Join("phases", machineFile), func(text string) string { return mapped(t, renamed(renamedFile(text), renamedActions)) })
	replace(filepath.Join("controllers", "datastoremigration", "program.go"), func(text string) string { return renamed(text, inCode(renamedActions)) })
	data, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "manager")
	const version = "v0.99.0"
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program,
		"-ldflags", "-X github.com/phasegate/phasegate/cmd/internal/release.version="+version, "./cmd/manager")
	build.Dir = root(t)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the next version: %v\n%s", err, said)
	}
	if said, err := exec.Command(program, "--version").Output(); err != nil || !strings.Contains(string(said), version) {
		t.Fatalf("the next version calls itself %q, %v", said, err)
	}
	return program
}

func textOf(t *testing.T, file string) string {
	t.Helper()
	if !filepath.IsAbs(file) {
		file = filepath.Join(root(t), file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// versions are two programs, of which one manages a cluster.
type versions struct {
	*world
	next    string
	mount   *mount
	running *harness.Process
}

// run ends the program that runs and starts another; empty: the older version. Without a file it has the
// machine that it was shipped with.
func (v *versions) run(t *testing.T, program, file string) {
	t.Helper()
	v.stop(t)
	args := []string{}
	if file != "" {
		v.mount.set(t, file)
		args = append(args, "--phases-dir", v.mount.dir)
	}
	v.running = v.managerOf(t, program, managerAccount, args...)
}

func (v *versions) stop(t *testing.T) {
	t.Helper()
	if v.running == nil || v.running.Alive() != nil {
		return
	}
	if err := v.running.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
}

// A migration under way goes from one version of the program to the next and back, while it holds what both
// call otherwise: nothing is lost, nothing is done twice, and either releases everything.
func TestUpgrade(t *testing.T) {
	next := nextManager(t)
	v := &versions{world: own(t, setup.Options{Objects: fixture.Demo(1, objects)}), next: next}
	v.dressAPIService(t)
	v.before = v.snapshot(t)
	for _, c := range []struct {
		name string
		run  func(*versions, *testing.T)
	}{
		{"copying ahead, up: the step goes on under its new name", (*versions).ahead},
		{"locked by the next version, and released by the older one", (*versions).back},
		{"locked by the older version, up without maps: it stands, and goes on with them", (*versions).unmapped},
		{"failed, up and back: a request is not acted on again", (*versions).requested},
		{"copied, up, and completed by the next version", (*versions).complete},
	} {
		inTurn(t, c.name, func(t *testing.T) {
			v.mount, v.running = newMount(t), nil
			c.run(v, t)
			v.assertNoStates(t, "DatastoreMigration")
		})
	}
}

func gatedText(t *testing.T, more ...edit) (now, next string) {
	t.Helper()
	now = textOf(t, filepath.Join(gated(t, more...), machineFile))
	return now, renamed(renamedFile(now), renamedActions)
}

func (v *versions) ahead(t *testing.T) {
	now, next := gatedText(t)
	v.run(t, "", now)
	v.start(t, setup.MigrationName, "ahead")
	before := v.awaitGate(t, setup.MigrationName, "ahead").Status.Machine
	v.run(t, v.next, mapped(t, next))
	after := v.awaitStatus(t, setup.MigrationName, "with the next revision", func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Machine.Revision != before.Revision
	}).Status.Machine
	if after.Step != "pause-ahead" || after.StepIndex != before.StepIndex || len(after.History) != len(before.History) {
		t.Errorf("at step %s, number %d after %d, history %v: the phase began anew", after.Step, after.StepIndex, before.StepIndex, after.History)
	}
	v.remove(t, setup.MigrationName)
	v.assertUntouched(t)
}

func (v *versions) back(t *testing.T) {
	now, next := gatedText(t)
	v.run(t, "", now)
	v.start(t, setup.MigrationName, "fenced")
	v.awaitGate(t, setup.MigrationName, "fenced")
	v.run(t, v.next, mapped(t, next))
	v.assertHolds(t, "CutOver", "v3Copies")
	v.goOn(t, "parked")
	v.assertHolds(t, "CutOver", "apiService")
	locked := v.read(t, setup.MigrationName)
	// What would stop the older version is told before: apiService and ownersOfV1 would not, of which it knows
	// the name or the release.
	shipped := filepath.Join(root(t), "phases", machineFile)
	v.exits(t, 1, "diff "+shipped+" "+shipped+" --live", "STRANDED", "LEAK: it holds lockOfV1, which")
	v.run(t, "", mapped(t, now))
	v.assertHolds(t, "Migrating", "apiService")
	v.goOn(t, "copied")
	dm := v.awaitGate(t, setup.MigrationName, "copied")
	assertStillLocked(t, locked, dm, "Pending", "Migrating", "CutOver", "Migrating")
	v.remove(t, setup.MigrationName)
	v.assertUntouched(t)
}

func (v *versions) unmapped(t *testing.T) {
	now, next := gatedText(t)
	v.run(t, "", now)
	v.start(t, setup.MigrationName, "locked")
	locked := v.awaitGate(t, setup.MigrationName, "locked")

	v.mount.set(t, renamedFile(now)) // a running manager has another file to go on with
	told := v.awaitEvent(t, "MachineRefused")
	for _, part := range []string{"PG104", "DatastoreMigration " + setup.MigrationName + " cannot go on with it", "in phase Migrating", "spec.upgrade.phaseMap"} {
		if !strings.Contains(told, part) {
			t.Errorf("Event MachineRefused does not say %q: %s", part, told)
		}
	}
	v.goOn(t, "parked")
	v.awaitGate(t, setup.MigrationName, "parked")

	v.run(t, v.next, next) // one that starts has not
	dm := v.awaitMessage(t, setup.MigrationName, "add it to spec.upgrade.phaseMap")
	assertAtRest(t, dm, "Stalled")
	v.assertHeld(t, "Migrating", held("apiService"))
	if said := v.running.Tail(200); !strings.Contains(said, "PG104") || !strings.Contains(said, setup.MigrationName) {
		t.Errorf("the manager that starts does not log what cannot go on:\n%s", said)
	}
	if v.ready(t, v.Registry.Lock().V1GVK().GroupVersion().String()) {
		t.Error("v1 was opened by a program that does not know who locked it")
	}
	if lock := dm.Status.Lock; !onPeersCRDs && (lock == nil || lock.Deadline == nil) {
		t.Error("nobody sees any more that there is a lock, and its deadline")
	}
	v.mount.set(t, mapped(t, next)) // as the message says
	v.assertHolds(t, "CutOver", "apiService")
	assertStillLocked(t, locked, v.read(t, setup.MigrationName), "Pending", "Migrating", "CutOver")
	v.remove(t, setup.MigrationName)
	v.assertUntouched(t)
}

func (v *versions) requested(t *testing.T) {
	now, next := gatedText(t, inPhase("Pending", func(_ *testing.T, p *v1alpha1.Phase) { p.Timeout.After = "1s" }))
	v.run(t, "", now)
	v.start(t, setup.MigrationName, "pending")
	v.awaitStatus(t, setup.MigrationName, "failed", failedTimes(1))
	v.annotate(t, setup.MigrationName, map[string]string{"phasegate.dev/retry": "first"})
	before := v.awaitStatus(t, setup.MigrationName, "failed again", failedTimes(2))
	for _, version := range []struct{ program, file, request string }{{v.next, next, "again"}, {"", now, "retry"}} {
		v.run(t, version.program, mapped(t, version.file))
		dm := v.awaitStatus(t, setup.MigrationName, "with request "+version.request, func(dm *migrationv1.DatastoreMigration) bool {
			return len(dm.Status.Machine.Requests) == 1 && dm.Status.Machine.Requests[0].Name == version.request
		})
		v.annotate(t, setup.MigrationName, map[string]string{"unrelated": "wakes " + version.request})
		if diff := cmp.Diff(path(before), path(dm)); diff != "" {
			t.Errorf("one request was acted on twice (-before +after):\n%s", diff)
		}
	}
	v.annotate(t, setup.MigrationName, map[string]string{"phasegate.dev/retry": "second"})
	v.awaitStatus(t, setup.MigrationName, "failed by another request", failedTimes(3))
	v.remove(t, setup.MigrationName)
}

// complete is the last: what it does is for good.
func (v *versions) complete(t *testing.T) {
	content := v.content(t)
	now, _ := gatedText(t)
	v.run(t, "", now)
	v.start(t, setup.MigrationName, "verified")
	locked := v.awaitGate(t, setup.MigrationName, "verified")
	before := v.writesOfCopies(t)
	v.running.Kill() // as a node that is lost
	v.run(t, v.next, "")
	dm := v.await(t, setup.MigrationName, "Converged")
	if diff := cmp.Diff(before, v.writesOfCopies(t)); diff != "" {
		t.Errorf("the next version writes copies again that are right (-before +after):\n%s", diff)
	}
	assertStillLocked(t, locked, dm, "Pending", "Migrating", "CutOver", "Converged")
	if err := fixture.SwitchComponents(t.Context(), v.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	assertAtRest(t, v.await(t, setup.MigrationName, "Complete"), "Ready")
	v.remove(t, setup.MigrationName)
	if left := v.v1CRDs(t); len(left) > 0 {
		t.Errorf("v1 CRDs are left: %q", left)
	}
	assertSameContent(t, content, v.content(t))
}

// writesOfCopies are the resourceVersions of all copies: each write changes one.
func (v *versions) writesOfCopies(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, copies := range v.copies(t) {
		for _, obj := range copies {
			all[key(obj)] = fmt.Sprint(obj.GetUID(), " ", obj.GetResourceVersion())
		}
	}
	if len(all) < objects/2 {
		t.Fatalf("only %d copies are found", len(all))
	}
	return all
}

// assertStillLocked checks that the lock is that of before, with its deadline, and the way of the migration.
func assertStillLocked(t *testing.T, before, after *migrationv1.DatastoreMigration, way ...string) {
	t.Helper()
	if diff := cmp.Diff(way, path(after)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if after.Status.Machine.Phase == "Converged" || onPeersCRDs {
		return // locked for good; no place for it
	}
	if diff := cmp.Diff(before.Status.Lock, after.Status.Lock); diff != "" || before.Status.Lock == nil {
		t.Errorf("the lock and its deadline (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before.Status.DatastoreLockedAt, after.Status.DatastoreLockedAt); diff != "" {
		t.Errorf("since when it is locked (-before +after):\n%s", diff)
	}
}

// assertHolds waits until the state says so, in the names of the version that has the phase.
func (v *versions) assertHolds(t *testing.T, phase, last string) {
	t.Helper()
	names := held(last)
	if phase == renamedPhases["Migrating"] {
		for i, name := range names {
			names[i] = renamed(name, renamedEffects)
		}
	}
	v.assertHeld(t, phase, names)
}

func (v *versions) assertHeld(t *testing.T, phase string, names []string) {
	t.Helper()
	v.awaitStatus(t, setup.MigrationName, fmt.Sprintf("in %s, holding %v", phase, names), func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Machine.Phase == phase && slices.Equal(dm.Status.Machine.HeldNames(), names)
	})
}
