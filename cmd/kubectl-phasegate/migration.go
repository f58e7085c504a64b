package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

type migration = migrationv1.DatastoreMigration

var migrationKind = migrationv1.GroupVersion.WithKind("DatastoreMigration")

// migrationName is how ofKind finds migrations.
var migrationName = strings.ToLower(migrationKind.Kind) + "." + migrationKind.Group

// migration reads the migration that args name, with its state; where they name none, the only
// one that there is. Why the state could not be read is on stderr.
func (k *known) migration(ctx context.Context, s streams, args []string) (target, *migration, error) {
	name := strings.Join(args, "")
	name = name[strings.LastIndexByte(name, '/')+1:] // kubectl get -o name writes KIND/NAME
	it, err := k.search(ctx, migrationName, name, nil)
	if err != nil {
		return it, nil, err
	}
	noted(s, it.object)
	dm, err := it.object.Migration()
	return it, dm, err
}

// drivenMigration is that of args, and the machine that drives it; files are those of -f.
func (c *cluster) drivenMigration(ctx context.Context, s streams, files, args []string) (client.Client, *migration, *fsm.Machine, error) {
	k, err := c.machines(ctx, s, files)
	if err != nil {
		return nil, nil, nil, err
	}
	it, dm, err := k.migration(ctx, s, args)
	if err == nil {
		k.noted(s, it.candidate)
	}
	return k.client, dm, it.driver, err
}

func completeMigrations(at *cluster) cobra.CompletionFunc {
	return at.completing(1, cobra.ShellCompDirectiveNoFileComp, func(ctx context.Context, k *known, _ []string, _ string) []string {
		return k.names(ctx, migrationName, "")
	})
}
