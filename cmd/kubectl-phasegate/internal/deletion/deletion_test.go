package deletion_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/deletion"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// told is what a status says of a deletion, from what people see of it.
func told(text string) *v1alpha1.DeletionStatus {
	to, transition := strings.CutPrefix(text, "→ ")
	message, hold := strings.CutPrefix(text, "hold: ")
	switch {
	case transition:
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionTransition, To: to}
	case hold:
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionHold, Message: message}
	case text == "going on":
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionInProgress}
	case text != "":
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionBlocked, Message: text}
	}
	return nil
}

func in(phase, onDelete string, held ...string) *migrationv1.DatastoreMigration {
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
	dm.Status.Phase, dm.Status.Machine.Phase = phase, phase
	dm.Status.Machine.OnDelete, dm.Status.Machine.Held = told(onDelete), v1alpha1.Held(held...)
	if phase == "Complete" {
		dm.Status.CompletedAt = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return dm
}

// shownOnly is what a CRD leaves that prunes status.machine.
func shownOnly(phase string) *migrationv1.DatastoreMigration {
	dm := in(phase, "")
	dm.Status.Machine = v1alpha1.MachineStatus{}
	return dm
}

func TestRefusal(t *testing.T) {
	cases := map[string]struct {
		why  string
		dm   *migrationv1.DatastoreMigration
		want deletion.DeleteMode
		says string
	}{
		"abort under the lock":     {why: "that is what it is for", dm: in("Migrating", "→ Aborting", "v1Lock"), want: deletion.Abort},
		"abort of a failed one":    {why: "it goes, and nothing else", dm: in("Failed", "→ Aborting"), want: deletion.Abort},
		"abort of a new one":       {why: "no manager has looked at it yet", dm: in("", ""), want: deletion.Abort},
		"abort past no return":     {why: "a deletion would wait, and then delete v1", dm: in("Converged", "hold: no way back"), want: deletion.Abort, says: "wait for Complete: kubectl phasegate status to-v3 -w"},
		"abort of a complete one":  {why: "that would be a clean-up", dm: in("Complete", "→ CleaningUp"), want: deletion.Abort, says: "run: kubectl phasegate cleanup to-v3"},
		"clean-up of a complete":   {why: "that is what it is for", dm: in("Complete", "→ CleaningUp"), want: deletion.CleanUp},
		"clean-up under the lock":  {why: "that would be an abort", dm: in("Migrating", "→ Aborting"), want: deletion.CleanUp, says: "run: kubectl phasegate abort to-v3"},
		"clean-up past no return":  {why: "not before all components run with v3", dm: in("Converged", "hold: no way back"), want: deletion.CleanUp, says: "wait for Complete"},
		"abort that has begun":     {why: "it may be waited for", dm: in("Aborting", "going on", "v1Lock"), want: deletion.Abort},
		"forged":                   {why: "the machine says what a deletion does, not the status", dm: in("Converged", "→ Aborting"), want: deletion.Abort, says: "past the point of no return"},
		"pruned":                   {why: "a peer's CRD has no status.machine: the phase that is shown counts", dm: shownOnly("Converged"), want: deletion.Abort, says: "past the point of no return"},
		"pruned, early":            {why: "the same", dm: shownOnly("Migrating"), want: deletion.Abort},
		"phase of another file":    {why: "what that manager does is not known", dm: in("Approving", ""), want: deletion.Abort, says: "datastore-migration.yaml does not have: what a deletion does there is unknown"},
		"told by another manager":  {why: "it knows its phase", dm: in("Approving", "→ Aborting"), want: deletion.Abort},
		"clean-up of an early one": {why: "there is nothing", dm: in("Pending", "→ Aborting"), want: deletion.CleanUp, says: "nothing to clean up before Complete"},
	}
	machine := shipped(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := deletion.Refusal(c.dm, machine, c.want)
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, deletion.ErrOther) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v, want one that says %q", c.why, err, c.says)
			}
		})
	}
}

// Everything that is held is told, the newest first, as it is released.
func TestTold(t *testing.T) {
	machine := shipped(t)
	under := in("Migrating", "", "v1Fence", "v1Lock")
	under.Status.Machine.Held = append(under.Status.Machine.Held, v1alpha1.HeldEffect{Name: "renamed", Release: "UnlockV3"})
	got := deletion.Consequences(under, machine)
	want := []string{
		"renamed    " + machine.Bindings().Actions["UnlockV3"].Doc, // as it was stored, whatever the file says by now
		"v1Lock     Sets v1 datastoreReady to true, if this migration locked it.",
		"v1Fence    Removes what BlockV1Writes installed, if this migration did.",
		"then DatastoreMigration to-v3 goes; v1 is as it was",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("under the lock (-want +got):\n%s", diff)
	}
	if got := deletion.Consequences(in("Complete", ""), machine); len(got) != 3 || !strings.Contains(got[0], "backup-of=to-v3") {
		t.Errorf("a clean-up: %q, want where the backup is", got)
	}
}

func shipped(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../../../phases/datastore-migration.yaml", catalog.BindingsOf(datastoremigration.MachineName))
}

// cluster has objects, and answers as funcs say.
func cluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// The manager writes while it copies. A deletion that was told of one state must not hit
// another one.
func TestDeleteHitsWhatWasTold(t *testing.T) {
	machine := shipped(t)
	cases := map[string]struct {
		why string
		now *migrationv1.DatastoreMigration
		// state is its phase by the MachineState; empty: there is none.
		state string
		want  error
	}{
		"its state has converged": {why: "the status lags behind", now: in("Migrating", "→ Aborting"), state: "Converged", want: deletion.ErrOther},
		"more is copied":          {why: "the same is released", now: in("Migrating", "→ Aborting")},
		"it has converged by now": {why: "nothing can be released any more", now: in("Converged", "hold: no way back"), want: deletion.ErrOther},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{c.now}
			if c.state != "" {
				state := &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MachineStateName(datastoremigration.MachineName, "u")}}
				state.Spec.Object.UID, state.Status.Phase = "u", c.state
				objects = append(objects, state)
			}
			conflicts := 2
			server := cluster(t, interceptor.Funcs{
				Delete: func(ctx context.Context, under client.WithWatch, obj client.Object, _ ...client.DeleteOption) error {
					if conflicts--; conflicts >= 0 {
						return apierrs.NewConflict(schema.GroupResource{}, obj.GetName(), errors.New("it moved"))
					}
					return under.Delete(ctx, obj)
				},
			}, objects...)
			before := in("Migrating", "→ Aborting")
			before.ResourceVersion = "1"
			err := deletion.Delete(t.Context(), server, before, machine, deletion.Abort)
			if !errors.Is(err, c.want) {
				t.Fatalf("%s: %v, want %v", c.why, err, c.want)
			}
			left := server.Get(t.Context(), client.ObjectKeyFromObject(before), &migrationv1.DatastoreMigration{})
			if gone := apierrs.IsNotFound(left); gone != (c.want == nil) {
				t.Errorf("%s: gone is %t", c.why, gone)
			}
		})
	}
}

// An API server that does not serve the kind yet has not said that the migration is gone: a person would go on as if
// everything were released.
func TestNotServedIsNotGone(t *testing.T) {
	notServed := apierrs.NewGenericServerResponse(404, "get", schema.GroupResource{Resource: "datastoremigrations"}, "to-v3", "404 page not found", 0, true)
	looks := 0
	server := cluster(t, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return notServed },
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if looks++; looks == 1 {
				return notServed
			}
			return under.Get(ctx, key, obj, opts...)
		},
	})
	before := in("Migrating", "→ Aborting")
	if err := deletion.Delete(t.Context(), server, before, shipped(t), deletion.Abort); !errors.Is(err, notServed) {
		t.Errorf("the deletion was not asked for, and the answer is %v", err)
	}
	err := deletion.Wait(t.Context(), server, before, shipped(t), func(*migrationv1.DatastoreMigration) {})
	if err != nil || looks < 2 {
		t.Errorf("%v after %d looks, want it gone at the second look: the first one told nothing", err, looks)
	}
}
