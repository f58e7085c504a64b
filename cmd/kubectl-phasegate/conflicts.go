package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/preview"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources/copier"
)

func conflictsCommand(s streams) *cobra.Command {
	kindsFile, withDiff := "", false
	cmd := &cobra.Command{
		Use:   "conflicts [NAME]",
		Short: "Show objects that differ between v1 and v3, and what resolves each",
		Long: `Compare v1 and v3 object by object. Show each field that differs with both values, and
two commands per object: one keeps v1, one keeps v3. Reads as you, and changes nothing.

While Calico's API server serves v3, the v3 storage is visible only through the side door
that a migration opens. Before that, nothing can be compared.

Exit codes: 0 no conflicts, or not comparable yet; 2 error; 4 conflicts.`,
		Example: `  kubectl phasegate conflicts
  kubectl phasegate conflicts to-v3 --diff
  kubectl phasegate conflicts to-v3 -o jsonpath='{range .conflicts[*]}{.keepV1.command}{"\n"}{end}'`,
		Args: cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	out := outputFlags(cmd, "table")
	cmd.ValidArgsFunction = completeMigrations(at)
	cmd.Flags().BoolVar(&withDiff, "diff", false, "also show a unified diff")
	cmd.Flags().StringVar(&kindsFile, "kinds-file", "", "kind registry file, as for the manager")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		l, err := newLook(cmd.Context(), s, at, lookOptions{args: args, kindsFile: kindsFile})
		if err != nil {
			return err
		}
		found, _, err := l.conflicts(cmd.Context(), withDiff)
		if err != nil {
			return err
		}
		err = display(s.out, out, shown[preview.Conflicts]{kind: "Conflicts", of: migrationKind, name: l.dm.Name, value: found, text: func(c preview.Conflicts, to io.Writer, _ bool) error { return c.Text(to) }})
		if err != nil || len(found.Conflicts) == 0 {
			return err
		}
		return errWaits
	}
	return cmd
}

// conflicts compares both sides, and also answers what else the comparison has found.
func (l *look) conflicts(ctx context.Context, withDiff bool) (preview.Conflicts, copier.Comparison, error) {
	site := preview.Site{Registry: l.registry, Migration: l.dm.Name, Locked: l.dm.Status.DatastoreLockedAt != nil}
	found := preview.Conflicts{Migration: l.dm.Name, Locked: site.Locked, Conflicts: []preview.Conflict{}}
	compared, version, unseen, err := l.Compare(ctx)
	if err != nil || unseen != "" {
		found.Unseen = unseen
		return found, compared, err
	}
	conflicts := compared.Conflicts
	site.Version = version
	sides := make([]datastoremigration.Both, len(conflicts))
	if len(conflicts) > 0 {
		if sides, err = l.Sides(ctx, conflicts, version); err != nil {
			return found, compared, fmt.Errorf("read both sides of the conflicts: %w", err)
		}
	}
	for i, c := range conflicts {
		resolved, err := site.Resolve(c, sides[i], withDiff)
		if err != nil {
			return found, compared, err
		}
		found.Conflicts = append(found.Conflicts, resolved)
	}
	return found, compared, nil
}
