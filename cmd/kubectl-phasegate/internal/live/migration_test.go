package live_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// shownAs is a migration whose CRD prunes: nothing but a phase that is old.
func shownAs(name string, uid types.UID, phase string) *migrationv1.DatastoreMigration {
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	dm.Status.Phase = phase
	return dm
}

func stateOf(name string, uid types.UID, phase string) *v1alpha1.MachineState {
	return &v1alpha1.MachineState{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MachineStateName(datastoremigration.MachineName, uid), Labels: map[string]string{v1alpha1.MachineLabel: datastoremigration.MachineName}},
		Spec:       v1alpha1.MachineStateSpec{Machine: datastoremigration.MachineName, Object: v1alpha1.ObjectReference{Name: name, UID: uid}},
		Status: v1alpha1.MachineStateStatus{
			MachineStatus: v1alpha1.MachineStatus{Phase: phase, Held: v1alpha1.Held("v1Lock")},
			Saved:         map[string]v1alpha1.SavedText{v1alpha1.SavedStatus: `{"startedAt":"2026-03-04T12:00:00Z"}`},
		},
	}
}

func compiled(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../../../phases/datastore-migration.yaml", catalog.BindingsOf(datastoremigration.MachineName))
}

func TestMigration(t *testing.T) {
	resource := schema.GroupResource{Group: "phasegate.dev", Resource: "machinestates"}
	const unsure = ": this is from the status of the object, which may be old, forged or incomplete"
	for name, c := range map[string]struct {
		why      string
		objects  []client.Object
		get      error // of states
		want     string
		requests int
		missing  bool
	}{
		"One": {why: "one request for the migration, and one more", objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want: "a Migrating 12:00 [v1Lock] ", requests: 2},
		"Deleted": {why: "the finalizer was removed by hand", objects: []client.Object{stateOf("a", "1", "Migrating")}, requests: 1, missing: true},
		"Replaced": {why: "the state is that of another one of its name", objects: []client.Object{shownAs("a", "2", ""), stateOf("a", "1", "Migrating")},
			want: "a   [] ", requests: 2},
		"NoStates": {why: "the view, with a note", get: apierrs.NewForbidden(resource, "", errors.New("no")),
			objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want:    "a Pending  [] you may not read machinestates.phasegate.dev" + unsure, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			o, err := live.Get(t.Context(), cluster(t, &requests, nil, c.get, c.objects...), compiled(t), types.NamespacedName{Name: "a"})
			if apierrs.IsNotFound(err) != c.missing || err != nil && !c.missing {
				t.Fatal(err)
			}
			got := ""
			if !c.missing {
				dm, err := o.Migration()
				if err != nil {
					t.Fatal(err)
				}
				started := ""
				if dm.Status.StartedAt != nil {
					started = dm.Status.StartedAt.UTC().Format("15:04")
				}
				got = fmt.Sprintf("%s %s %s %v %s", dm.Name, dm.CurrentPhase(), started, dm.Status.Machine.HeldNames(), o.Note)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || requests != c.requests {
				t.Errorf("%s: %d requests, not %d (-want +got):\n%s", c.why, requests, c.requests, diff)
			}
		})
	}
}

// A server that is away is neither a missing migration nor a missing state.
func TestMigrationsOfAServerThatIsAway(t *testing.T) {
	requests := 0
	c := cluster(t, &requests, errors.New("connection refused"), errors.New("connection refused"), shownAs("a", "1", "Pending"))
	if _, err := live.List(t.Context(), c, compiled(t), ""); err == nil {
		t.Error("the read failed, and the view was taken for the truth")
	}
	if _, err := live.Get(t.Context(), c, compiled(t), types.NamespacedName{Name: "a"}); err == nil {
		t.Error("the read failed, and the view was taken for the truth")
	}
}

// cluster counts requests; list and get are the errors that reads of states end in.
func cluster(t *testing.T, requests *int, list, get error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	isState := func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Group == v1alpha1.Group }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if *requests++; get != nil && isState(o) {
				return get
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if *requests++; list != nil && isState(l) {
				return list
			}
			return c.List(ctx, l, opts...)
		},
	}).Build()
}
