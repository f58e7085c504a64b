package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
)

type migration = migrationv1.DatastoreMigration

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// errNoMigration is wrapped by the error that says that the cluster has none.
var errNoMigration = errors.New("there is no DatastoreMigration")

// theMigration reads the migration that args name, with its state. Where they name none it
// is the only one that there is: the right to list them is needed then, else that to get it.
// Why the state could not be read is on stderr.
func theMigration(ctx context.Context, s streams, c client.Client, args []string) (*migration, error) {
	name := strings.Join(args, "")
	name = name[strings.LastIndexByte(name, '/')+1:] // kubectl get -o name writes KIND/NAME
	var one live.Migration
	var err error
	if name != "" {
		one, err = live.GetMigration(ctx, c, name)
	} else {
		one, err = onlyMigration(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	noted(s, live.Object{Name: one.Name, Note: one.Note})
	return one.DatastoreMigration, nil
}

func onlyMigration(ctx context.Context, c client.Client) (live.Migration, error) {
	one, names, err := live.OnlyMigration(ctx, c)
	switch {
	case meta.IsNoMatchError(err), err == nil && len(names) == 0:
		return one, fmt.Errorf("%w: create one (docs/operate/migrate.md), or choose another cluster with --context", errNoMigration)
	case apierrs.IsForbidden(err):
		return one, fmt.Errorf("%w: you may not list them: give the name of one", err)
	case len(names) > 1:
		return one, fmt.Errorf("which migration? give one of: %s", strings.Join(names, ", "))
	}
	return one, err
}

// drivenMigration is theMigration, and the machine that drives it; files are those of -f.
func (c *cluster) drivenMigration(ctx context.Context, s streams, files, args []string) (client.Client, *migration, *fsm.Machine, error) {
	k, err := c.machines(ctx, s, files)
	if err != nil {
		return nil, nil, nil, err
	}
	dm, err := theMigration(ctx, s, k.client, args)
	if err != nil {
		return nil, nil, nil, err
	}
	machine, err := k.driverOf(s, migrationKind, dm.Status.Machine)
	return k.client, dm, machine, err
}

// completeMigrations offers the names of the cluster's migrations, as the first argument.
func completeMigrations(at *cluster) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTakes)
		defer cancel()
		if c, _, err := at.connect(); err == nil {
			_, names, _ = live.OnlyMigration(ctx, c)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
