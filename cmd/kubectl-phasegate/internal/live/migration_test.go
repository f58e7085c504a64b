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
	"github.com/phasegate/phasegate/controllers/datastoremigration"
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

// found is what came of a read, in short.
type found struct {
	Migrations []string
	Orphans    []string
	Requests   int
	Missing    bool
}

func TestMigrations(t *testing.T) {
	resource := schema.GroupResource{Group: "phasegate.dev", Resource: "machinestates"}
	const unsure = ": this is from the status of the object, which may be old, forged or incomplete"
	for name, c := range map[string]struct {
		why     string
		ask     string
		objects []client.Object
		list    error // of states
		get     error // of states
		want    found
	}{
		"One": {why: "one request for the migration, and one more", ask: "a", objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want: found{Migrations: []string{"a Migrating 12:00 [v1Lock] "}, Requests: 2}},
		"Any": {why: "the same where no name is given", objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want: found{Migrations: []string{"a Migrating 12:00 [v1Lock] "}, Requests: 2}},
		"Gone": {why: "the finalizer was removed by hand: what it holds is still held", ask: "a", objects: []client.Object{stateOf("a", "1", "Migrating")},
			want: found{Orphans: []string{"a 1"}, Requests: 3, Missing: true}},
		"Replaced": {why: "another one has its name", ask: "a", objects: []client.Object{shownAs("a", "2", ""), stateOf("a", "1", "Migrating")},
			want: found{Migrations: []string{"a   [] "}, Orphans: []string{"a 1"}, Requests: 3}},
		"Other": {why: "a state of another migration that is there is none of an orphan", ask: "a",
			objects: []client.Object{shownAs("a", "1", ""), shownAs("b", "2", "Complete"), stateOf("a", "1", "Pending"), stateOf("b", "2", "Complete")},
			want:    found{Migrations: []string{"a Pending 12:00 [v1Lock] "}, Requests: 3}},
		"GetOnly": {why: "the right to get is enough for one that is named", ask: "a", list: apierrs.NewForbidden(resource, "", errors.New("no")),
			objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want:    found{Migrations: []string{"a Migrating 12:00 [v1Lock] "}, Requests: 3}},
		"Neither": {why: "the view, with a note", ask: "a", list: apierrs.NewForbidden(resource, "", errors.New("no")), get: apierrs.NewForbidden(resource, "", errors.New("no")),
			objects: []client.Object{shownAs("a", "1", "Pending"), stateOf("a", "1", "Migrating")},
			want:    found{Migrations: []string{"a Pending  [] you may not read machinestates.phasegate.dev" + unsure}, Requests: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := found{}
			all, orphans, err := live.Migrations(t.Context(), cluster(t, &got.Requests, c.list, c.get, c.objects...), c.ask)
			if got.Missing = apierrs.IsNotFound(err); err != nil && !got.Missing {
				t.Fatal(err)
			}
			for _, dm := range all {
				started := ""
				if dm.Status.StartedAt != nil {
					started = dm.Status.StartedAt.UTC().Format("15:04")
				}
				got.Migrations = append(got.Migrations, fmt.Sprintf("%s %s %s %v %s", dm.Name, dm.CurrentPhase(), started, dm.Status.Machine.HeldNames(), dm.Note))
			}
			for _, o := range orphans {
				got.Orphans = append(got.Orphans, o.Spec.Object.Name+" "+string(o.Spec.Object.UID))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A server that is away is neither a missing migration nor a missing state.
func TestMigrationsOfAServerThatIsAway(t *testing.T) {
	requests := 0
	c := cluster(t, &requests, errors.New("connection refused"), errors.New("connection refused"), shownAs("a", "1", "Pending"))
	if _, _, err := live.Migrations(t.Context(), c, "a"); err == nil {
		t.Error("the list failed, and the view was taken for the truth")
	}
	if _, err := live.GetMigration(t.Context(), c, "a"); err == nil {
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
