package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources"
)

const lockExits = `

Exit codes: 0 done, 1 nothing written: a migration holds or takes the lock, or you
declined; 2 error.`

func lockCommand(s streams) *cobra.Command {
	return glassCommand(s, &cobra.Command{
		Use:   "lock",
		Short: "Break glass: lock Calico's datastore by hand",
		Long: `Set datastoreReady of Calico's ClusterInformation to false, with a note of who did it.
Calico assigns no more addresses: running pods keep their network, new pods wait. Other
writes are not blocked.

A migration locks the datastore by itself, and reports a lock that you set before. While a
migration is in progress, nothing is written.` + lockExits,
		Example: `  kubectl phasegate lock`,
	}, (*datastoremigration.Locks).Lock)
}

func unlockCommand(s streams) *cobra.Command {
	force := false
	cmd := glassCommand(s, &cobra.Command{
		Use:   "unlock",
		Short: "Break glass: unlock Calico's datastore by hand",
		Long: `Remove the lock of kubectl phasegate lock, or one left by a migration that is gone. Shows
the steps, and asks on a terminal.

While a migration holds the lock, nothing is written: roll back with kubectl phasegate
abort. --force is for when no manager can run: it deletes the migration, restores the
APIService, allows v1 writes and unlocks v1, in this order. The copies stay, hidden, until
a manager deletes them. Past the point of no return, --force opens v3 instead, and v1
stays locked for good.

It can be repeated. A write is refused if the object has changed meanwhile.` + lockExits,
		Example: `  kubectl phasegate unlock
  kubectl phasegate unlock --force`,
	}, func(l *datastoremigration.Locks) (datastoremigration.UnlockDecision, error) { return l.Unlock(force) })
	cmd.Flags().BoolVar(&force, "force", false, "unlock although a migration holds the lock")
	return cmd
}

// glassCommand looks, tells, asks and acts.
func glassCommand(s streams, cmd *cobra.Command, decide func(*datastoremigration.Locks) (datastoremigration.UnlockDecision, error)) *cobra.Command {
	yes, files := false, []string{}
	cmd.Args = cobra.NoArgs
	at := clusterFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "machine file of migrations; default: the published one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := at.rest()
		if err != nil {
			return err
		}
		c, err := client.New(cfg, client.Options{Scheme: datastoremigration.NewScheme()})
		if err != nil {
			return err
		}
		k, err := at.machines(cmd.Context(), s, files)
		if err != nil {
			return err
		}
		_, machine, err := k.driving(s, migrationName)
		if err != nil {
			return err
		}
		glass := datastoremigration.NewBreakGlass(c, resources.Default(), machine)
		locks, err := glass.Look(cmd.Context())
		if err != nil {
			return err
		}
		noted(s, live.Object{Name: "DatastoreMigrations", Note: locks.Note})
		verdict, err := decide(locks)
		if errors.Is(err, datastoremigration.ErrHeld) {
			return tell(s, err, errFindings)
		}
		if err != nil {
			return err
		}
		return breakGlass(cmd.Context(), s, glass, verdict, yes)
	}
	return cmd
}

func breakGlass(ctx context.Context, s streams, glass *datastoremigration.BreakGlass, verdict datastoremigration.UnlockDecision, yes bool) error {
	say(s.err, "%s", verdict.Says)
	if len(verdict.Deeds) == 0 {
		say(s.out, "nothing to do")
		return nil
	}
	for i, deed := range verdict.Deeds {
		say(s.err, "  %d. %s", i+1, deed)
	}
	if err := confirm(s, yes, "write this"); err != nil {
		return err
	}
	for _, deed := range verdict.Deeds {
		if err := glass.Do(ctx, deed); err != nil {
			return fmt.Errorf("%s: %w: the steps above are done: check them and run this again", deed, err)
		}
		say(s.out, "done: %s", deed)
	}
	return nil
}
