package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources"
)

const lockExits = `

Exit codes: 0 it is as you want it; 1 nothing was written: a migration has or takes the
lock, or you said no; 2 it could not be done.`

func lockCommand(s streams) *cobra.Command {
	return glassCommand(s, &cobra.Command{
		Use:   "lock",
		Short: "Break glass: close Calico's datastore by hand",
		Long: `Set datastoreReady of Calico's ClusterInformation to false, with a note who did it.
Calico's components stop giving out addresses: pods that run keep their network, new ones
wait. Nobody else is kept from writing.

A migration closes the datastore by itself, and says that you did it if you do it before.
While one is on its way nothing is written.` + lockExits,
		Example: `  kubectl phasegate lock`,
	}, (*datastoremigration.Locks).Lock)
}

func unlockCommand(s streams) *cobra.Command {
	force := false
	cmd := glassCommand(s, &cobra.Command{
		Use:   "unlock",
		Short: "Break glass: open Calico's datastore by hand",
		Long: `Open what is closed: what was closed by kubectl phasegate lock, or what a migration has
left that is gone. It says what it does and asks on a terminal.

While a migration has the lock nothing is written: kubectl phasegate abort gives
everything back. --force is for the case that no manager can be brought to run. It
deletes the migration, puts the APIService back, lifts the fence and opens v1, in this
order; the copies stay, hidden, until a manager comes back and deletes them. Past the
point of no return it opens v3; v1 stays closed then, for good.

It may be run again. Every write is refused where somebody has written meanwhile.` + lockExits,
		Example: `  kubectl phasegate unlock
  kubectl phasegate unlock --force`,
	}, func(l *datastoremigration.Locks) (datastoremigration.UnlockDecision, error) { return l.Unlock(force) })
	cmd.Flags().BoolVar(&force, "force", false, "open it although a migration has it locked")
	return cmd
}

// glassCommand looks, tells, asks and acts.
func glassCommand(s streams, cmd *cobra.Command, decide func(*datastoremigration.Locks) (datastoremigration.UnlockDecision, error)) *cobra.Command {
	yes, files := false, []string{}
	cmd.Args = cobra.NoArgs
	at := clusterFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "machine file of migrations; default: the one that the manager has published")
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
		machine, err := k.driverOf(s, migrationKind, v1alpha1.MachineStatus{})
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
	fmt.Fprintln(s.err, verdict.Says)
	if len(verdict.Deeds) == 0 {
		fmt.Fprintln(s.out, "nothing to do")
		return nil
	}
	for i, deed := range verdict.Deeds {
		fmt.Fprintf(s.err, "  %d. %s\n", i+1, deed)
	}
	if err := confirm(s, yes, "write this"); err != nil {
		return err
	}
	for _, deed := range verdict.Deeds {
		if err := glass.Do(ctx, deed); err != nil {
			return fmt.Errorf("%s: %w: what is above is done; look at it and run this again", deed, err)
		}
		fmt.Fprintf(s.out, "done: %s\n", deed)
	}
	return nil
}
