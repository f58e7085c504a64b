package live

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

// Migration is a DatastoreMigration with its state laid over its status.
type Migration struct {
	*migrationv1.DatastoreMigration
	// Note is as in Object.
	Note string
}

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// GetMigration reads one migration, and its state after it. So a deletion on condition of
// the resourceVersion is judged by a state that is not older than the object.
func GetMigration(ctx context.Context, c client.Reader, name string) (Migration, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(migrationKind)
	if err := c.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
		return Migration{}, fmt.Errorf("read DatastoreMigration %s: %w", name, err)
	}
	return withState(ctx, c, u)
}

// OnlyMigration is GetMigration of the only one that there is. The names are those of all.
func OnlyMigration(ctx context.Context, c client.Reader) (one Migration, names []string, err error) {
	all, err := All(ctx, c, migrationKind)
	if err != nil {
		return one, nil, fmt.Errorf("list DatastoreMigrations: %w", err)
	}
	for i := range all {
		names = append(names, all[i].GetName())
	}
	if len(all) == 1 {
		one, err = withState(ctx, c, &all[0])
	}
	return one, names, err
}

func withState(ctx context.Context, c client.Reader, u *unstructured.Unstructured) (Migration, error) {
	states, err := machinestate.Get(ctx, c, datastoremigration.MachineName, u.GetUID())
	if err != nil {
		return Migration{}, err
	}
	o, err := NewObject(u, states)
	if err != nil {
		return Migration{}, err
	}
	dm := &migrationv1.DatastoreMigration{}
	return Migration{DatastoreMigration: dm, Note: o.Note}, o.As(dm)
}
