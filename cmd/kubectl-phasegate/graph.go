package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/show/graph"
)

var formats = map[string]func(*fsm.Machine, graph.Options) string{
	"ascii": graph.ASCII, "dot": graph.Dot, "mermaid": graph.Mermaid, "svg": graph.SVG,
}

// everywhere is what --live is without a value: all objects.
const everywhere = "*"

func graphCommand(s streams) *cobra.Command {
	var where string
	noDeletion, errorEdges := false, true
	cmd := &cobra.Command{
		Use:   "graph [FILE|MACHINE]",
		Short: "Draw a machine, and where objects are in it",
		Long: `Draw the phases of a machine and all transitions: guards, reasons, timeouts, errors, and
what a deletion does (dashed or dotted).

--live NAME marks the phase of an object, what it holds, and which exits are closed.
--live alone counts the objects in each phase, in all namespaces or in that of -n. Write
--live=NAME for an object with the name of a machine.

MACHINE is published by a manager of the cluster, else compiled in.

Exit codes: 0 drawn, 1 file refused, 2 error.`,
		Example: `  kubectl phasegate graph
  kubectl phasegate graph phases/datastore-migration.yaml -o dot --no-deletion | dot -Tsvg > machine.svg
  kubectl phasegate graph datastore-migration --live migration`,
		Args: cobra.MaximumNArgs(2),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMachines(at, false)
	output := formatFlag(cmd, "ascii", "dot", "mermaid", "svg")
	cmd.Flags().BoolVar(&noDeletion, "no-deletion", false, "leave out what a deletion does")
	cmd.Flags().BoolVar(&errorEdges, "errors", true, "draw where errors lead")
	cmd.Flags().StringVar(&where, "live", "", "mark the object of this name; without a name: count all objects")
	cmd.Flags().Lookup("live").NoOptDefVal = everywhere
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format := formats[output.value]
		if format == nil {
			return fmt.Errorf("-o %q: write one of %v", output.value, output.known)
		}
		machine, name, err := machineAndObject(cmd.Context(), s, at, args, where)
		if err != nil {
			return err
		}
		options := graph.Options{NoDeletion: noDeletion, NoErrors: !errorEdges}
		if name != "" {
			if options.Marks, err = marks(cmd.Context(), s, at, machine, name); err != nil {
				return err
			}
		}
		fmt.Fprint(s.out, format(machine, options))
		return nil
	}
	return cmd
}

// machineAndObject reads the arguments: since --live may have no value, the name
// after it arrives as an argument that is no machine.
func machineAndObject(ctx context.Context, s streams, at *cluster, args []string, where string) (machine *fsm.Machine, name string, err error) {
	args = slices.Clone(args)
	if last := len(args) - 1; where == everywhere && last >= 0 && !isPath(args[last]) && (last == 1 || !at.isMachine(ctx, args[last])) {
		where, args = args[last], args[:last]
	}
	if len(args) > 1 {
		return nil, "", fmt.Errorf("%q is one argument too many: give the object by --live NAME", args[1])
	}
	machine, err = at.choose(ctx, s, strings.Join(args, ""))
	return machine, where, err
}

func (c *cluster) isMachine(ctx context.Context, name string) bool {
	k, _, cancel := c.quietly(ctx, io.Discard)
	defer cancel()
	return slices.ContainsFunc(k.all, func(c candidate) bool { return c.name == name })
}

func marks(ctx context.Context, s streams, at *cluster, m *fsm.Machine, name string) (graph.Marks, error) {
	c, _, err := at.connect()
	if err != nil {
		return graph.Marks{}, err
	}
	if name == everywhere {
		objects, err := live.List(ctx, c, m, at.only())
		noted(s, objects...)
		counts := map[string]int{}
		for _, o := range objects {
			if o.Machine.Phase != "" && !o.Gone {
				counts[o.Machine.Phase]++
			}
		}
		return graph.MarkCounts(counts), err
	}
	namespace, err := at.namespace()
	if err != nil {
		return graph.Marks{}, err
	}
	o, err := live.Get(ctx, c, m, types.NamespacedName{Namespace: namespace, Name: name})
	noted(s, o)
	return graph.MarkObject(m, o.String(), &o.Machine), err
}
