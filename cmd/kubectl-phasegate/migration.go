package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
)

type migration = migrationv1.DatastoreMigration

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// errNoMigration is wrapped by the error that says that the cluster has none.
var errNoMigration = errors.New("there is no DatastoreMigration")

// theMigration reads the migration that args name, with its state. Where they name none it
// is the only one that there is: the right to list them is needed then, else that to get it.
// Why the state could not be read is on stderr.
func theMigration(ctx context.Context, s streams, c client.Client, args []string) (*migration, error) {
	one, _, err := findMigration(ctx, c, args)
	if err != nil {
		return nil, err
	}
	noted(s, live.Object{Name: one.Name, Note: one.Note})
	return one.DatastoreMigration, nil
}

// findMigration answers orphans, the states of migrations that are gone, also with an
// error that says that there is no migration: those of its name, if one is given.
func findMigration(ctx context.Context, c client.Client, args []string) (live.Migration, []live.Orphan, error) {
	name := strings.Join(args, "")
	name = name[strings.LastIndexByte(name, '/')+1:] // kubectl get -o name writes KIND/NAME
	all, orphans, err := live.Migrations(ctx, c, name)
	switch {
	case name == "" && meta.IsNoMatchError(err), err == nil && len(all) == 0:
		return live.Migration{}, orphans, fmt.Errorf("%w: create one (docs/operate/migrate.md), or choose another cluster with --context", errNoMigration)
	case apierrs.IsForbidden(err) && name == "":
		return live.Migration{}, nil, fmt.Errorf("%w: you may not list them: give the name of one", err)
	case err != nil:
		another := func(o live.Orphan) bool { return o.Spec.Object.Name != name }
		return live.Migration{}, slices.DeleteFunc(orphans, another), err
	case len(all) > 1:
		return live.Migration{}, nil, fmt.Errorf("which migration? give one of: %s", strings.Join(namesOf(all), ", "))
	}
	return all[0], orphans, nil
}

func namesOf(all []live.Migration) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

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
		all, _, _ := live.Migrations(ctx, c, "")
		return namesOf(all), cobra.ShellCompDirectiveNoFileComp
	}
}
