package overview_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/controllers/overview"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// now is the moment at which the objects of testdata are looked at.
var now = time.Date(2026, 11, 21, 10, 5, 0, 0, time.UTC)

func shipped(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../phases/datastore-migration.yaml", datastoremigration.Bindings())
}

// Each object of testdata says in its first line what is to be seen in the texts made of it.
func TestTexts(t *testing.T) {
	m := shipped(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dm := &migrationv1.DatastoreMigration{}
			if err := yaml.UnmarshalStrict(data, dm); err != nil {
				t.Fatal(err)
			}
			o := overview.Of(m, live.Migration{DatastoreMigration: dm}, now)
			var text strings.Builder
			for _, v := range []struct {
				title string
				view  overview.View
			}{{"status", overview.View{}}, {"status --tree -o wide", overview.View{Tree: true, Wide: true}}} {
				text.WriteString("$ kubectl phasegate " + v.title + "\n")
				if err := o.Text(&text, v.view); err != nil {
					t.Fatal(err)
				}
				text.WriteString("\n")
			}
			text.WriteString("in a line: " + o.Line() + "\n")
			fsmtest.Golden(t, name+".txt", text.String())
			asJSON, err := json.MarshalIndent(o, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			fsmtest.Golden(t, name+".json", string(asJSON)+"\n")
		})
	}
}

// What is left of migrations that are gone, beside one that is there and without any.
func TestOrphans(t *testing.T) {
	m := shipped(t)
	left := &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: "datastore-migration.0-1"}}
	left.Spec.Object = v1alpha1.ObjectReference{Name: "to-v3", UID: "0-1"}
	left.Status.Phase = "Migrating"
	left.Status.Held = []v1alpha1.HeldEffect{{Name: "v1Fence"}, {Name: "lock", Release: "UnlockV1", With: `{"a":1}`}}
	empty := &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: "datastore-migration.0-2"}}
	empty.Spec.Object = v1alpha1.ObjectReference{Name: "old", UID: "0-2"}
	empty.Status.Phase = "Failed"
	orphans := overview.OrphansOf(m, []live.Orphan{left, empty})
	want := []overview.Orphan{
		{State: "datastore-migration.0-1", Object: "to-v3", UID: "0-1", Phase: "Migrating", Next: "what it holds is being given back by the manager, which then removes the state", Held: []overview.Held{
			{Effect: "v1Fence", Acquire: m.Bindings().Actions["FenceV1"].Doc, Release: m.Bindings().Actions["UnfenceV1"].Doc},
			{Effect: "lock", Release: m.Bindings().Actions["UnlockV1"].Doc},
		}},
		{State: "datastore-migration.0-2", Object: "old", UID: "0-2", Phase: "Failed", Next: "nothing is held: the manager removes the state"},
	}
	if diff := cmp.Diff(want, orphans); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	alone := overview.Overview{Machine: m.Name(), Now: now, Orphans: orphans}
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3"}}
	dm.Status.Machine.Phase = "Pending"
	beside := overview.Of(m, live.Migration{DatastoreMigration: dm, Note: "you may not read machinestates.phasegate.dev: ..."}, now)
	beside.Orphans = orphans
	fsmtest.Golden(t, "testdata/orphans.txt", alone.String(overview.View{})+"\n"+beside.String(overview.View{}))
}

// What no manager writes any more says so before anything else, also to who follows it line by line.
func TestStale(t *testing.T) {
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3"}}
	dm.Status.Machine.Phase, dm.Status.Message = "Pending", "Copying"
	since := now.Add(-3 * time.Minute)
	o := overview.Of(shipped(t), live.Migration{DatastoreMigration: dm, Stale: &live.Stale{
		Since: &since, Why: "its manager does not renew lease a/b", Do: "get a manager running", Command: "kubectl get pods",
	}}, now)
	fsmtest.Golden(t, "testdata/stale.txt", o.String(overview.View{})+"\nin a line: "+o.Line()+"\n")
}

// Who may not read the state, on a CRD that keeps nothing of the machine, sees the phase that is shown.
func TestPhaseOfAViewOnAForeignCRD(t *testing.T) {
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3"}}
	dm.Status.Phase = "Complete"
	o := overview.Of(shipped(t), live.Migration{DatastoreMigration: dm, Note: "you may not read machinestates.phasegate.dev"}, now)
	if o.Phase != "Complete" || o.Outcome != overview.Succeeded {
		t.Errorf("phase %q, outcome %q", o.Phase, o.Outcome)
	}
}
