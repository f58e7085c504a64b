package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/story"
)

func explainCommand(s streams) *cobra.Command {
	var output, object string
	cmd := &cobra.Command{
		Use:   "explain {PHASE | --live NAME} [FILE|MACHINE]",
		Short: "Tell what happens in a phase, what leaves it and what a deletion does",
		Long: `Tell what a phase does step by step, what leaves it, what a deletion does from
there to the end, what is held, how long it may last, and how a person gets an
object out of it.

--live NAME tells of the phase that this object is in, and what it waits for now.

Exit codes: 0 told, 1 the file is refused, 2 there is no such phase, machine or object.`,
		Example: `  kubectl phasegate explain Migrating
  kubectl phasegate explain Ready my/mcpserver.yaml -o json
  kubectl phasegate explain datastore-migration --live migration`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completePhases,
	}
	at := clusterFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&object, "live", "", "tell of the phase of the object of this name")
	completeOutput(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		phase, machine, err := phaseAndMachine(s, args, object)
		if err != nil {
			return err
		}
		var seen *story.Live
		if object != "" {
			c, _, err := at.connect()
			if err != nil {
				return err
			}
			namespace, err := at.namespace()
			if err != nil {
				return err
			}
			o, err := live.Get(cmd.Context(), c, machine, types.NamespacedName{Namespace: namespace, Name: object})
			if err != nil {
				return err
			}
			noted(s, o)
			phase, seen = o.Machine.Phase, &story.Live{Object: o.String(), Status: o.Machine}
		}
		known, err := catalog.Bindings(machine.Definition())
		if err != nil {
			return err
		}
		told, err := story.New(machine, known).Phase(phase)
		if err != nil {
			return err
		}
		told.Live = seen
		return printAs(s.out, output, told, told.Text)
	}
	return cmd
}

// phaseAndMachine reads the arguments. With an object there is no PHASE: it is
// that of the object.
func phaseAndMachine(s streams, args []string, object string) (phase string, machine *fsm.Machine, err error) {
	what := ""
	switch {
	case object == "" && len(args) == 0:
		return "", nil, errors.New("which phase? give PHASE, or --live NAME for that of an object")
	case object == "":
		phase, args = args[0], args[1:]
	case len(args) == 2:
		return "", nil, fmt.Errorf("%q: with --live, the phase is that of the object: leave it out", args[0])
	}
	if len(args) == 1 {
		what = args[0]
	}
	having := ""
	if what == "" {
		having = phase
	}
	machine, err = chooseMachine(s, what, having)
	return phase, machine, err
}

// noted says once for each reason why what is shown of objects may be old.
func noted(s streams, objects ...live.Object) {
	told := map[string]bool{"": true}
	for _, o := range objects {
		if !told[o.Note] {
			fmt.Fprintf(s.err, "‼ %s: %s\n", o, o.Note)
		}
		told[o.Note] = true
	}
}

// printAs writes a value as text or as JSON.
func printAs(to io.Writer, output string, value any, text func() string) error {
	switch output {
	case "text":
		fmt.Fprint(to, text())
		return nil
	case "json":
		enc := json.NewEncoder(to)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	}
	return fmt.Errorf("-o %q: write text or json", output)
}

func completePhases(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return completeMachines(cmd, args, text)
	}
	var names []string
	files, _ := readMachines(nil)
	for _, f := range files {
		if f.machine != nil {
			names = append(names, f.machine.Phases()...)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
