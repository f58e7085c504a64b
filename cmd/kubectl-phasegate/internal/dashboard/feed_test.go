package dashboard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/dashboard"
)

// shownLine is what a snapshot says of one migration.
type shownLine struct{ Phase, Note string }

// The page shows what the state says, and says so where it cannot.
func TestFeedReadsStates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "1"}}
	dm.Status.Phase = "Pending" // nothing else is left of it
	state := &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: "datastore-migration.1", Labels: map[string]string{v1alpha1.MachineLabel: "datastore-migration"}}}
	state.Spec.Object.UID, state.Status.Phase = "1", "Migrating"
	for name, c := range map[string]struct {
		why     string
		refused bool
		want    shownLine
	}{
		"Allowed": {"the state", false, shownLine{Phase: "Migrating"}},
		"Refused": {"the view, which is all there is", true,
			shownLine{"Pending", "you may not read machinestates.phasegate.dev: this is from the status of the object, which may be old, forged or incomplete"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := clusterOf(scheme, c.refused, dm.DeepCopy(), state.DeepCopy())
			feed := dashboard.NewFeed(server, dashboard.Of{Kind: migrationv1.GroupVersion.WithKind("DatastoreMigration"), Machine: "datastore-migration"})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			go func() { _ = feed.Run(ctx) }() // it ends with ctx
			var got shownLine
			for ctx.Err() == nil && got != c.want {
				for _, o := range feed.Snapshot().Objects {
					phase := o.Machine.Phase
					if phase == "" {
						phase = o.ShownPhase
					}
					got = shownLine{phase, o.Note}
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// clusterOf has objects, and may refuse to list states.
func clusterOf(scheme *runtime.Scheme, refused bool, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.MachineStateList); ok && refused {
				return apierrs.NewForbidden(schema.GroupResource{Group: "phasegate.dev", Resource: "machinestates"}, "", nil)
			}
			return under.List(ctx, list, opts...)
		},
		// The fake knows no initial events: informers fall back to lists then.
		Watch: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			all := client.ListOptions{}
			all.ApplyOptions(opts)
			if all.Raw != nil && all.Raw.SendInitialEvents != nil {
				return nil, apierrs.NewInvalid(schema.GroupKind{}, "", nil)
			}
			return under.Watch(ctx, list, opts...)
		},
	}).Build()
}
