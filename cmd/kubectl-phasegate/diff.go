package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/show/diff"
)

func diffCommand(s streams) *cobra.Command {
	var inFlight bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two revisions of a machine, also for live objects",
		Long: `Compare two revisions of a machine, phase by phase. OLD and NEW are files or names of
machines: published by managers of the cluster, else compiled in.

--live shows what NEW means for every object of the kind, in all namespaces or in that of
-n: it continues, is mapped, or is stranded; and which held effects NEW cannot release.

Exit codes: 0 safe, 1 something would be stranded or leak, or a file is refused, 2 error.`,
		Example: `  kubectl phasegate diff datastore-migration my/datastore-migration.yaml
  kubectl phasegate diff old.yaml new.yaml --live`,
		Args: cobra.ExactArgs(2),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMachines(at, false)
	output := formatFlag(cmd, "text", "json")
	cmd.Flags().BoolVar(&inFlight, "live", false, "check every live object against NEW")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		older, err := at.choose(cmd.Context(), s, args[0])
		if err != nil {
			return err
		}
		newer, err := at.choose(cmd.Context(), s, args[1])
		if err != nil {
			return err
		}
		report := diff.Machines(older.Definition(), newer.Definition())
		if inFlight {
			if report.Impacts, err = fates(cmd.Context(), s, at, newer); err != nil {
				return err
			}
		}
		if err := show(s.out, output, report, diff.Report.Text); err != nil {
			return err
		}
		if report.Stranding() {
			return errFindings
		}
		return nil
	}
	return cmd
}

// fates looks at every object that the machine drives or would drive.
func fates(ctx context.Context, s streams, at *cluster, newer *fsm.Machine) ([]diff.Impact, error) {
	c, _, err := at.connect()
	if err != nil {
		return nil, err
	}
	objects, err := live.List(ctx, c, newer, at.only())
	all := []diff.Impact{} // not nil: they were looked at
	noted(s, objects...)
	for _, o := range objects {
		name := o.String()
		if o.Gone {
			name += " (deleted, its state is still there)"
		}
		all = append(all, diff.ImpactOf(newer, name, &o.Machine))
	}
	return all, err
}
