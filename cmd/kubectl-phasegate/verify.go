package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/resources/copier"
)

func verifyCommand(s streams) *cobra.Command {
	kindsFile := ""
	cmd := &cobra.Command{
		Use:   "verify [NAME]",
		Short: "Compare every v1 object with its copy in v3",
		Long: `Compare every v1 object with its copy in v3, as the migration does before it opens v3.
Lists objects only in v3 that this migration did not make (‼): they take effect when v3
opens, but make no copy wrong, and late writes of v1 that a person has to decide about
(‼). Reads as you, and changes nothing.

Use it between the copy and the first write to v3. Before the cut-over, v3 shows v1's own
objects, and the command fails. Later, changes made in v3 count as differences.

Exit codes: 0 equal, 1 different, 2 error.`,
		Example: `  kubectl phasegate verify to-v3
  kubectl phasegate verify to-v3 -o json`,
		Args: cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMigrations(at)
	output := formatFlag(cmd, "table", "json")
	cmd.Flags().StringVar(&kindsFile, "kinds-file", "", "kind registry file, as for the manager")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := output.check(); err != nil {
			return err
		}
		found, err := compareSides(cmd.Context(), s, at, args, kindsFile)
		if err != nil {
			return err
		}
		if err := show(s.out, output, found, sides.table); err != nil || found.Same {
			return err
		}
		return errFindings
	}
	return cmd
}

// sides is what both sides came to, as it is shown.
type sides struct {
	Migration string                    `json:"migration"`
	Same      bool                      `json:"same"`
	Kinds     []copier.KindVerification `json:"kinds"`
	// Differences name one object each.
	Differences []string `json:"differences"`
	// OnlyInV3 name one object each that no copy is of: the sides are the same all the same.
	OnlyInV3 []string `json:"onlyInV3"`
	// LateWrites name one object each that was written in v1 after both sides were compared, and in v3 too.
	LateWrites []string `json:"lateWrites"`
}

func compareSides(ctx context.Context, s streams, at *cluster, args []string, kindsFile string) (sides, error) {
	registry, err := lint.LoadRegistry(kindsFile)
	if err != nil {
		return sides{}, err
	}
	k, err := at.machines(ctx, s, nil)
	if err != nil {
		return sides{}, err
	}
	_, dm, err := k.migration(ctx, s, args)
	if err != nil {
		return sides{}, err
	}
	say(s.err, "Reading v1 and v3 of %s...", dm.Name)
	v, err := copier.New(registry, k.client, dm.UID).Verify(ctx)
	if err != nil {
		return sides{}, fmt.Errorf("compare v1 and v3: %w", err)
	}
	return sidesOf(dm, v), nil
}

func sidesOf(dm *migration, v copier.Verification) sides {
	out := sides{Migration: dm.Name, Same: v.OK(), Kinds: []copier.KindVerification{}, Differences: []string{}, OnlyInV3: []string{}, LateWrites: []string{}}
	for _, c := range dm.Status.LateWrites {
		out.LateWrites = append(out.LateWrites, migrationv1.Conflicts{c}.String())
	}
	for _, k := range v.Kinds {
		if k.V1+k.V3 > 0 {
			out.Kinds = append(out.Kinds, k)
		}
	}
	for _, c := range append(v.Different, v.Altered...) {
		text := fmt.Sprintf("%s %s: %s", c.Kind, strings.TrimPrefix(c.Namespace+"/"+c.Name, "/"), c.Cause)
		for _, f := range c.Fields {
			text += "; " + f.String()
		}
		out.Differences = append(out.Differences, text)
	}
	for _, p := range append(v.Missing, v.Extra...) {
		out.Differences = append(out.Differences, p.Error())
	}
	for _, p := range v.OnlyInV3 {
		out.OnlyInV3 = append(out.OnlyInV3, p.Error())
	}
	return out
}

const onlyInV3Named = 5

func (o sides) table() string {
	out := &strings.Builder{}
	t := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "KIND\tV1\tV3\tSAME")
	for _, k := range o.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", k.Kind, k.V1, k.V3, k.Same)
	}
	_ = t.Flush() // a text is never full
	for _, d := range o.Differences {
		fmt.Fprintf(out, "× %s\n", d)
	}
	for _, text := range o.LateWrites {
		fmt.Fprintf(out, "‼ written in v1 after both sides were compared, and in v3 too: %s\n", text)
	}
	for i, text := range o.OnlyInV3 {
		if i == onlyInV3Named {
			fmt.Fprintf(out, "‼ and %d more are in v3 only: kubectl phasegate verify %s -o json\n", len(o.OnlyInV3)-i, o.Migration)
			break
		}
		fmt.Fprintf(out, "‼ %s\n", text)
	}
	switch n := len(o.OnlyInV3); {
	case o.Same && n > 0:
		fmt.Fprintf(out, "Both sides are the same, except for %d only in v3.\n", n)
	case o.Same:
		fmt.Fprintln(out, "Both sides are the same.")
	default:
		fmt.Fprintf(out, "%d objects differ.\n", len(o.Differences))
	}
	return out.String()
}
