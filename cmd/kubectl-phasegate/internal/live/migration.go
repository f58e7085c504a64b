package live

import (
	"context"
	"fmt"
	"slices"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

// Migration is a DatastoreMigration with its state laid over its status.
type Migration struct {
	*migrationv1.DatastoreMigration
	// Note is as in Object.
	Note string
}

// NewMigration lays the state of a migration over its status.
func NewMigration(dm *migrationv1.DatastoreMigration, states *machinestate.States) (Migration, error) {
	note, err := states.Over(dm, dm.UID)
	return Migration{DatastoreMigration: dm, Note: note}, err
}

// Orphan is the state of an object that is gone.
type Orphan = *v1alpha1.MachineState

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// GetMigration reads one migration, and its state after it. So a deletion on condition of
// the resourceVersion is judged by a state that is not older than the object.
func GetMigration(ctx context.Context, c client.Reader, name string) (Migration, error) {
	dm, err := readMigration(ctx, c, name)
	if err != nil {
		return Migration{}, err
	}
	states, err := machinestate.Get(ctx, c, datastoremigration.MachineName, dm.UID)
	if err != nil {
		return Migration{}, err
	}
	return NewMigration(dm, states)
}

// Migrations reads all migrations, or the one of a name, and then all states. An error
// that says that the migration or its kind is not there comes with orphans all the same.
func Migrations(ctx context.Context, c client.Reader, name string) (all []Migration, orphans []Orphan, err error) {
	objects, missing := readMigrations(ctx, c, name)
	if missing != nil && !isMissing(missing) {
		return nil, nil, missing
	}
	states, err := statesOf(ctx, c, objects, name != "")
	if err != nil {
		return nil, nil, err
	}
	seen := map[types.UID]bool{}
	for _, dm := range objects {
		m, err := NewMigration(dm, states)
		if err != nil {
			return nil, nil, err
		}
		all, seen[dm.UID] = append(all, m), true
	}
	isThere := func(state Orphan) bool { // it may be newer than the list, or not the one that was asked for
		dm, err := readMigration(ctx, c, state.Spec.Object.Name)
		return err != nil && !isMissing(err) || err == nil && dm.UID == state.Spec.Object.UID
	}
	return all, slices.DeleteFunc(states.Orphans(seen), isThere), missing
}

// statesOf reads all states, or that of the one migration where only this is allowed.
func statesOf(ctx context.Context, c client.Reader, objects []*migrationv1.DatastoreMigration, one bool) (*machinestate.States, error) {
	states, err := machinestate.List(ctx, c, datastoremigration.MachineName)
	if err == nil && states.Unread() != "" && one && len(objects) > 0 {
		return machinestate.Get(ctx, c, datastoremigration.MachineName, objects[0].UID)
	}
	return states, err
}

func isMissing(err error) bool { return apierrs.IsNotFound(err) || meta.IsNoMatchError(err) }

func readMigrations(ctx context.Context, c client.Reader, name string) ([]*migrationv1.DatastoreMigration, error) {
	if name != "" {
		dm, err := readMigration(ctx, c, name)
		if err != nil {
			return nil, err
		}
		return []*migrationv1.DatastoreMigration{dm}, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(migrationKind)
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list DatastoreMigrations: %w", err)
	}
	all := make([]*migrationv1.DatastoreMigration, len(list.Items))
	for i := range list.Items {
		var err error
		if all[i], err = asMigration(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readMigration(ctx context.Context, c client.Reader, name string) (*migrationv1.DatastoreMigration, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(migrationKind)
	if err := c.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
		return nil, fmt.Errorf("read DatastoreMigration %s: %w", name, err)
	}
	return asMigration(u)
}

// asMigration leaves out what this program does not know: the controller may be newer.
func asMigration(u *unstructured.Unstructured) (*migrationv1.DatastoreMigration, error) {
	dm := &migrationv1.DatastoreMigration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, dm); err != nil {
		return nil, fmt.Errorf("read DatastoreMigration %s: %w: use kubectl-phasegate of the manager's version", u.GetName(), err)
	}
	return dm, nil
}
