package machinestate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

const machine = "datastore-migration"

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)

func state(uid types.UID, st v1alpha1.MachineStateStatus) *v1alpha1.MachineState {
	return &v1alpha1.MachineState{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MachineStateName(machine, uid), Labels: map[string]string{v1alpha1.MachineLabel: machine}},
		Spec:       v1alpha1.MachineStateSpec{Machine: machine, Object: v1alpha1.ObjectReference{Name: "of-" + string(uid), UID: uid}},
		Status:     st,
	}
}

func TestOverlay(t *testing.T) {
	at := metav1.NewMicroTime(noon)
	lockedAt := metav1.NewTime(noon)
	// A view that somebody forged, or that is old.
	view := migrationv1.DatastoreMigrationStatus{
		Phase: "Pending", Message: "waits", DatastoreLockedAt: &lockedAt, CompletedAt: &lockedAt,
		Machine: v1alpha1.MachineStatus{
			Phase: "Pending", Step: "Preflight", Held: v1alpha1.Held("forged"), Deadline: &at,
			Blocked: []v1alpha1.Blocked{{Step: "Preflight", Guard: "a"}}, OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate},
		},
	}
	held := []v1alpha1.HeldEffect{{Name: "v1Lock", Release: "UnlockV1"}}
	for name, c := range map[string]struct {
		why   string
		state v1alpha1.MachineStateStatus
		want  migrationv1.DatastoreMigrationStatus
		fails bool
	}{
		"OtherPosition": {
			why: "what the view says of another position is not about this one",
			state: v1alpha1.MachineStateStatus{
				MachineStatus: v1alpha1.MachineStatus{Phase: "Migrating", Step: "LockV1", Held: held},
				Saved:         map[string]v1alpha1.SavedText{v1alpha1.SavedStatus: `{"lock":{"mode":"Enforced"}}`},
			},
			want: migrationv1.DatastoreMigrationStatus{
				Phase: "Pending", Message: "waits", Lock: &migrationv1.Lock{Mode: migrationv1.LockEnforced},
				Machine: v1alpha1.MachineStatus{Phase: "Migrating", Step: "LockV1", Held: held},
			},
		},
		"SamePosition": {
			why:   "what only the view has is kept; what the state does not have is not",
			state: v1alpha1.MachineStateStatus{MachineStatus: v1alpha1.MachineStatus{Phase: "Pending", Step: "Preflight"}},
			want: migrationv1.DatastoreMigrationStatus{
				Phase: "Pending", Message: "waits",
				Machine: v1alpha1.MachineStatus{
					Phase: "Pending", Step: "Preflight",
					Blocked: []v1alpha1.Blocked{{Step: "Preflight", Guard: "a"}}, OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate},
				},
			},
		},
		"Edited": {
			why:   "a text that is no JSON must not look like an empty one",
			state: v1alpha1.MachineStateStatus{Saved: map[string]v1alpha1.SavedText{v1alpha1.SavedStatus: `lock`}},
			fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dm := migrationv1.DatastoreMigration{Status: *view.DeepCopy()}
			s := state("a", c.state)
			before := s.DeepCopy()
			err := machinestate.Overlay(&dm, s)
			if (err != nil) != c.fails {
				t.Fatalf("%s: error %v", c.why, err)
			}
			if diff := cmp.Diff(c.want, dm.Status); diff != "" && !c.fails {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			dm.Status.Machine.Held = append(dm.Status.Machine.Held, v1alpha1.HeldEffect{})
			if diff := cmp.Diff(before, s); diff != "" {
				t.Errorf("the state was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// fails answers every read of states with an error. Their CRD is there, or not.
func fails(err error, installed bool) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			if obj.GetObjectKind().GroupVersionKind().Kind != "CustomResourceDefinition" {
				return err
			}
			if installed {
				return nil
			}
			return apierrs.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, key.Name)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return err
		},
	})
}

func TestNotes(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "machinestates"}
	const unsure = ": this is from the status of the object, which may be old, forged or incomplete"
	const lost = "it has no MachineState: this is from the status of the object; a manager recovers the state, or stops with reason StateLost"
	const missing = "the CRD machinestates.phasegate.dev is not installed"
	for name, c := range map[string]struct {
		why       string
		err       error
		installed bool
		phase     string
		get, list string
		fails     bool
	}{
		"Forbidden": {why: "a reader of migrations alone is told that it is the view", err: apierrs.NewForbidden(resource, "", errors.New("no")), phase: "Pending",
			get: "you may not read machinestates.phasegate.dev" + unsure, list: "you may not read machinestates.phasegate.dev" + unsure},
		"NoMatch": {why: "a cluster of an older release", err: &meta.NoKindMatchError{}, phase: "Pending", get: missing + unsure, list: missing + unsure},
		"NotServed": {why: "the CRD went after the mapper had seen it", err: apierrs.NewGenericServerResponse(404, "get", resource, "any", "404 page not found", 0, true), phase: "Pending",
			get: missing + unsure, list: missing + unsure},
		"Starting": {why: "an API server that has just started must not look like a cluster without states", err: &meta.NoKindMatchError{}, installed: true, fails: true},
		"Lost":     {why: "the kind is there, the state is not", err: apierrs.NewNotFound(resource, "any"), phase: "Pending", get: lost, list: missing + unsure},
		"NotBegun": {why: "no machine has touched it: nothing is missing", err: apierrs.NewNotFound(resource, "any"), get: "", list: missing + unsure},
		"Away":     {why: "a server that is away must not look like a view", err: errors.New("connection refused"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []struct {
				read func(client.Reader) (*machinestate.States, error)
				want string
			}{
				{func(r client.Reader) (*machinestate.States, error) {
					return machinestate.Get(t.Context(), r, machine, "a")
				}, c.get},
				{func(r client.Reader) (*machinestate.States, error) { return machinestate.List(t.Context(), r, machine) }, c.list},
			} {
				states, err := from.read(fails(c.err, c.installed))
				if (err != nil) != c.fails {
					t.Fatalf("%s: error %v", c.why, err)
				}
				if c.fails {
					continue
				}
				dm := &migrationv1.DatastoreMigration{}
				dm.Status.Machine.Phase = c.phase
				got, err := states.Over(dm, "a")
				if got != from.want || err != nil || dm.Status.Machine.Phase != c.phase {
					t.Errorf("%s: note %q, error %v; want %q", c.why, got, err, from.want)
				}
			}
		})
	}
}

func TestListAndOrphans(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	other := state("z", v1alpha1.MachineStateStatus{})
	other.Name, other.Labels[v1alpha1.MachineLabel] = "mcpserver.z", "mcpserver"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(other,
		state("b", v1alpha1.MachineStateStatus{MachineStatus: v1alpha1.MachineStatus{Phase: "Migrating", Held: v1alpha1.Held("v1Lock")}}),
		state("a", v1alpha1.MachineStateStatus{}), state("c", v1alpha1.MachineStateStatus{})).Build()
	states, err := machinestate.List(t.Context(), c, machine)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range states.Orphans(map[types.UID]bool{"c": true}) {
		names = append(names, s.Spec.Object.Name)
	}
	if diff := cmp.Diff([]string{"of-a", "of-b"}, names); diff != "" {
		t.Errorf("those whose object is not there, of this machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.Held("v1Lock"), states.Of("b").Status.Held); diff != "" {
		t.Errorf("what is held (-want +got):\n%s", diff)
	}
}
