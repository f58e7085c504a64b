package statusview_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// now is the moment at which the objects of testdata are looked at.
var now = time.Date(2026, 11, 21, 10, 5, 0, 0, time.UTC)

func shipped(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../../../phases/datastore-migration.yaml", datastoremigration.Bindings())
}

// read is an object as YAML.
func read(t *testing.T, data []byte) live.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	o, err := live.NewObject(u, machinestate.New(nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	o.Note = "" // as if it were from the MachineState
	return o
}

// in is a migration in a phase.
func in(t *testing.T, phase, message string) live.Object {
	t.Helper()
	return read(t, fmt.Appendf(nil, "{apiVersion: migration.projectcalico.org/v1, kind: DatastoreMigration, metadata: {name: to-v3}, status: {message: %q, machine: {phase: %s}}}", message, phase))
}

// of is the overview of an object that can be read.
func of(t *testing.T, m *fsm.Machine, object live.Object, by statusview.Caller) statusview.Overview {
	t.Helper()
	o, err := statusview.Of(m, object, now, by)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Each object of testdata says in its first line what is to be seen in the texts made of it.
func TestTexts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		golden(t, shipped(t), file, statusview.Caller{})
	}
}

// A kind of one's own is shown by its own file, with commands for the cluster that was asked.
func TestTextsOfAnyKind(t *testing.T) {
	const example = "../../../../docs/extend/examples/database-restore/database-restore.yaml"
	files, err := filepath.Glob("testdata/custom/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		golden(t, fsmtest.Machine(t, example, generic.Bindings()), file, statusview.Caller{Flags: "--context 'a b'", File: "my-phases"})
	}
}

func golden(t *testing.T, m *fsm.Machine, file string, by statusview.Caller) {
	name := strings.TrimSuffix(file, ".yaml")
	t.Run(filepath.Base(name), func(t *testing.T) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := of(t, m, read(t, data), by)
		var text strings.Builder
		for _, v := range []struct {
			title string
			view  statusview.View
		}{{"status", statusview.View{}}, {"status --tree -o wide", statusview.View{Tree: true, Wide: true}}} {
			text.WriteString("$ kubectl phasegate " + v.title + "\n")
			if err := o.Text(&text, v.view); err != nil {
				t.Fatal(err)
			}
			text.WriteString("\n")
		}
		text.WriteString("in a line: " + o.Line() + "\n")
		anyRevision := strings.NewReplacer(m.Revision(), "sha256:of-the-file-at-hand")
		fsmtest.Golden(t, name+".txt", anyRevision.Replace(text.String()))
		asJSON, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fsmtest.Golden(t, name+".json", anyRevision.Replace(string(asJSON))+"\n")
	})
}

// What is left of migrations that are gone, beside one that is there and without any.
func TestOrphans(t *testing.T) {
	m := shipped(t)
	kind := schema.FromAPIVersionAndKind("migration.projectcalico.org/v1", "DatastoreMigration")
	left := live.Object{Kind: kind, Name: "to-v3", UID: "0-1", Gone: true, Machine: v1alpha1.MachineStatus{
		Phase: "Migrating", Held: []v1alpha1.HeldEffect{{Name: "v1Fence"}, {Name: "lock", Release: "UnlockV1", With: `{"a":1}`}}}}
	empty := live.Object{Kind: kind, Name: "old", UID: "0-2", Gone: true, Machine: v1alpha1.MachineStatus{Phase: "Failed"}}
	orphans := statusview.OrphansOf(m, []live.Object{left, empty}, statusview.Caller{Flags: "--context c"})
	want := []statusview.Orphan{
		{State: "datastore-migration.0-1", Kind: kind.Kind, Object: "to-v3", UID: "0-1", Phase: "Migrating", Command: "kubectl describe machinestate datastore-migration.0-1 --context c",
			Next: "what it holds is being released by the manager, which then removes the state", Held: []statusview.Held{
				{Effect: "v1Fence", Acquire: m.Bindings().Actions["BlockV1Writes"].Doc, Release: m.Bindings().Actions["AllowV1Writes"].Doc},
				{Effect: "lock", Release: m.Bindings().Actions["UnlockV1"].Doc},
			}},
		{State: "datastore-migration.0-2", Kind: kind.Kind, Object: "old", UID: "0-2", Phase: "Failed", Command: "kubectl describe machinestate datastore-migration.0-2 --context c",
			Next: "nothing is held: the manager removes the state"},
	}
	if diff := cmp.Diff(want, orphans); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	alone := statusview.Overview{Machine: m.Name(), Now: now, Orphans: orphans}
	there := in(t, "Pending", "")
	there.Note = "you may not read machinestates.phasegate.dev: ..."
	beside := of(t, m, there, statusview.Caller{})
	beside.Orphans = orphans
	fsmtest.Golden(t, "testdata/orphans.txt", alone.String(statusview.View{})+"\n"+beside.String(statusview.View{}))
}

// What no manager writes any more says so before anything else, also to who follows it line by line.
func TestStale(t *testing.T) {
	since := now.Add(-3 * time.Minute)
	there := in(t, "Pending", "Copying")
	there.Stale = &live.Stale{Since: &since, Why: "its manager does not renew lease a/b", Do: "get a manager running", Command: "kubectl get pods"}
	o := of(t, shipped(t), there, statusview.Caller{})
	fsmtest.Golden(t, "testdata/stale.txt", o.String(statusview.View{})+"\nin a line: "+o.Line()+"\n")
}

// Who may not read the state, on a CRD that keeps nothing of the machine, sees the phase that is shown.
func TestPhaseOfAViewOnAForeignCRD(t *testing.T) {
	there := read(t, []byte("{apiVersion: migration.projectcalico.org/v1, kind: DatastoreMigration, metadata: {name: to-v3}, status: {phase: Complete}}"))
	o := of(t, shipped(t), there, statusview.Caller{})
	if o.Phase != "Complete" || o.Outcome != statusview.Succeeded {
		t.Errorf("phase %q, outcome %q", o.Phase, o.Outcome)
	}
}

// At the stepIndex another file has another step: its text is not told.
func TestNoStepOfAnotherFile(t *testing.T) {
	m := shipped(t)
	for revision, want := range map[string]*statusview.Step{
		m.Revision():     {Name: "AnotherStep"},
		"sha256:another": {Name: "AnotherStep"},
	} {
		there := in(t, "Migrating", "")
		there.Machine.Step, there.Machine.StepIndex, there.Machine.Revision = "AnotherStep", 1, revision
		o := of(t, m, there, statusview.Caller{})
		if diff := cmp.Diff(want, o.Step); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if says := o.InForce == m.Revision(); says == (revision == m.Revision()) {
			t.Errorf("driven by %s it says %q is in force", revision, o.InForce)
		}
	}
}
