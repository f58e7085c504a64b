package datastoremigration

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// A process that dies at its second write gets further with its first one, whatever was noted before.
func TestCleanUpInShortLives(t *testing.T) {
	b := newBackedUp(t, 7)
	must(t, b.Create(t.Context(), v3PoolCRD(time.Now())))
	b.note(t, migrationv1.AnnotationWaive, waiveV1Changed+"@u-1")
	must(t, b.backUp(t, b.WithWatch, nil))
	died := errors.New("died")
	for range 20 {
		writes := 0
		once := func(write func() error) error {
			if writes++; writes > 1 {
				return died
			}
			return write()
		}
		err := b.run(t, interceptor.NewClient(b.WithWatch, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				return once(func() error { return c.Create(ctx, obj, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return once(func() error { return c.Patch(ctx, obj, patch, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return once(func() error { return c.Delete(ctx, obj, opts...) })
			},
		}), CleanUpAction, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, died) {
			t.Fatal(err)
		}
	}
	t.Error("after 20 processes v1 is still there")
}

// onRecord brings what the state says of the backup to a value.
func (b *backedUp) onRecord(t *testing.T, value string) {
	t.Helper()
	state := onceState(b.dm.UID, backupKey, value)
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	state.Status.Saved[backupKey] = v1alpha1.SavedText(value)
	must(t, b.Update(t.Context(), state))
}

// note sets an annotation of the migration.
func (b *backedUp) note(t *testing.T, key, value string) {
	t.Helper()
	dm := &migration{}
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(b.dm), dm))
	metav1.SetMetaDataAnnotation(&dm.ObjectMeta, key, value)
	must(t, b.Update(t.Context(), dm))
}
