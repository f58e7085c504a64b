package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/deletion"
	"github.com/phasegate/phasegate/fsm"
)

const endingExits = `

Exit codes: 0 deleted, with --wait: gone; 1 not deleted, as a deletion does something else
in this phase, or you declined; 2 error; with --wait: 3 timeout, 4 stalled.`

func abortCommand(s streams) *cobra.Command {
	return endCommand(s, deletion.Abort, &cobra.Command{
		Use:   "abort [NAME]",
		Short: "Roll back a migration",
		Long: `Delete a DatastoreMigration before its point of no return. Shows first what will be given
back, and asks on a terminal. v1 is unlocked, the APIService restored, and the copies are
deleted. Without --wait, it returns at once, and the manager does the work.

From Converged on there is no rollback: nothing is deleted.` + endingExits,
		Example: `  kubectl phasegate abort --wait
  kubectl phasegate abort to-v3 --yes --wait --timeout 5m`,
	})
}

func cleanupCommand(s streams) *cobra.Command {
	return endCommand(s, deletion.CleanUp, &cobra.Command{
		Use:   "cleanup [NAME]",
		Short: "Delete a Complete migration, with the v1 CRDs and their objects",
		Long: `Delete a DatastoreMigration that is Complete: back up the v1 objects and CRDs in Secrets,
then delete the CRDs. Shows this first, and asks on a terminal. Deleted objects come back
only from that backup. There is no hurry: v1 does no harm.

Before Complete nothing is deleted: see abort.` + endingExits,
		Example: `  kubectl phasegate cleanup --wait
  kubectl phasegate cleanup to-v3 --yes --wait --timeout 10m`,
	})
}

type end struct {
	way     deletion.DeleteMode
	files   []string
	yes     bool
	wait    bool
	timeout time.Duration
}

func endCommand(s streams, way deletion.DeleteMode, cmd *cobra.Command) *cobra.Command {
	e := end{way: way}
	at := clusterFlags(cmd)
	flags := cmd.Flags()
	flags.StringSliceVarP(&e.files, "file", "f", nil, "machine file; default: the published one")
	flags.BoolVar(&e.yes, "yes", false, "do not ask")
	flags.BoolVar(&e.wait, "wait", false, "wait until the migration is gone")
	flags.DurationVar(&e.timeout, "timeout", 10*time.Minute, "how long to wait; 0 means no limit")
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = completeMigrations(at)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), s, at, args) }
	return cmd
}

func (e *end) run(ctx context.Context, s streams, at *cluster, args []string) error {
	c, dm, machine, err := at.drivenMigration(ctx, s, e.files, args)
	if err != nil {
		return err
	}
	if err := e.ask(s, dm, machine); err != nil {
		return err
	}
	err = deletion.Delete(ctx, c, dm, machine, e.way)
	if errors.Is(err, deletion.ErrOther) {
		return tell(s, err, errFindings)
	}
	if err != nil {
		return err
	}
	if !e.wait {
		say(s.out, "datastoremigration/%s: %s requested", dm.Name, e.way)
		return nil
	}
	err = finish(ctx, s, e.timeout, func(ctx context.Context) error {
		return deletion.Wait(ctx, c, dm, machine, func(dm *migrationv1.DatastoreMigration) {
			say(s.err, "%s: %s", dm.CurrentPhase(), dm.Status.Message)
		})
	})
	if errors.Is(err, deletion.ErrStalled) {
		return tell(s, err, errWaits)
	}
	if err == nil {
		say(s.out, "datastoremigration/%s: %s done", dm.Name, e.way)
	}
	return err
}

// ask tells what will happen, and asks whether it shall. What was begun is only told.
func (e *end) ask(s streams, dm *migrationv1.DatastoreMigration, machine *fsm.Machine) error {
	if err := deletion.Refusal(dm, machine, e.way); err != nil {
		return tell(s, err, errFindings)
	}
	say(s.err, "DatastoreMigration %s is in phase %s. Its %s:", dm.Name, cmp.Or(dm.CurrentPhase(), "(none yet)"), e.way)
	for _, line := range deletion.Consequences(dm, machine) {
		say(s.err, "  %s", line)
	}
	if dm.DeletionTimestamp != nil {
		say(s.err, "It is being deleted already.")
		return nil
	}
	return confirm(s, e.yes, fmt.Sprintf("%s %s", e.way, dm.Name))
}
