package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// errNoMigration is wrapped by the error that says that the cluster has none.
var errNoMigration = errors.New("there is no DatastoreMigration")

// theMigration reads the migration that args name. Where they name none it is the only
// one that there is: the rights to list them are needed then, else that to get it.
func theMigration(ctx context.Context, c client.Client, args []string) (*migrationv1.DatastoreMigration, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(migrationKind)
	if len(args) > 0 {
		name := args[0][strings.LastIndexByte(args[0], '/')+1:] // kubectl get -o name writes KIND/NAME
		if err := c.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
			return nil, fmt.Errorf("read DatastoreMigration %s: %w", name, err)
		}
		return asMigration(u)
	}
	all, err := listMigrations(ctx, c)
	switch {
	case meta.IsNoMatchError(err), err == nil && len(all) == 0:
		return nil, fmt.Errorf("%w: create one (docs/operate/migrate.md), or choose another cluster with --context", errNoMigration)
	case apierrs.IsForbidden(err):
		return nil, fmt.Errorf("%w: you may not look which there are: give the name of one", err)
	case err != nil:
		return nil, err
	case len(all) > 1:
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].GetName()
		}
		return nil, fmt.Errorf("which migration? give one of: %s", strings.Join(names, ", "))
	}
	return asMigration(&all[0])
}

func listMigrations(ctx context.Context, c client.Client) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(migrationKind)
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list DatastoreMigrations: %w", err)
	}
	return list.Items, nil
}

// asMigration leaves out what this program does not know: the controller may be newer.
func asMigration(u *unstructured.Unstructured) (*migrationv1.DatastoreMigration, error) {
	dm := &migrationv1.DatastoreMigration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, dm); err != nil {
		return nil, fmt.Errorf("read DatastoreMigration %s: %w: is this program of the version of the controller?", u.GetName(), err)
	}
	return dm, nil
}

// completionTakes is how long a shell may wait for names.
const completionTakes = 3 * time.Second

// completeMigrations offers the names of the cluster's migrations, as the first argument.
func completeMigrations(at *cluster) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTakes)
		defer cancel()
		c, _, err := at.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, _ := listMigrations(ctx, c)
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].GetName()
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
