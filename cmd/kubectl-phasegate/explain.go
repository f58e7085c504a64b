package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/show/describe"
)

type explainOptions struct {
	at     *cluster
	output *format
	object string
	files  []string
}

func explainCommand(s streams) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain {FILE|MACHINE | PHASE [FILE|MACHINE] | --live [KIND/]NAME}",
		Short: "Explain a machine, or one of its phases",
		Long: `Explain a machine or a phase: its steps, exits, what a deletion does from there to the
end, what is held, how long it may last, and how a person gets an object out of it.

MACHINE is published by a manager of the cluster (kubectl get machinedefinitions), else
compiled in.

--live NAME explains the present phase of an object, by the machine that drives it, and
what it waits for.

Exit codes: 0 explained, 1 file refused, 2 no such phase, machine or object.`,
		Example: `  kubectl phasegate explain database-restore
  kubectl phasegate explain my/machine.yaml
  kubectl phasegate explain Migrating
  kubectl phasegate explain Ready my/mcpserver.yaml -o json
  kubectl phasegate explain --live databaserestore/monday -n bookshop`,
		Args: cobra.MaximumNArgs(2),
	}
	o.at = clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMachines(o.at, true)
	flags := cmd.Flags()
	o.output = formatFlag(cmd, "text", "json")
	flags.StringVar(&o.object, "live", "", "explain the phase of the object [KIND/]NAME")
	flags.StringSliceVarP(&o.files, "file", "f", nil, "with --live: machine file; default: the published one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.object != "":
			return o.live(cmd.Context(), s, args)
		case len(args) == 0:
			return errors.New("what? give a MACHINE, a FILE, a PHASE, or --live NAME for the phase of an object")
		case len(o.files) > 0:
			return errors.New("-f is for --live: give the file as an argument")
		case len(args) == 1 && isPath(args[0]):
			return o.whole(s, args)
		}
		return o.named(cmd.Context(), s, args)
	}
	return cmd
}

func (o *explainOptions) live(ctx context.Context, s streams, args []string) error {
	files := o.files
	if len(args) > 0 && isPath(args[len(args)-1]) {
		files, args = append(files, args[len(args)-1]), args[:len(args)-1]
	}
	if len(args) > 1 {
		return fmt.Errorf("%q: with --live, the phase is that of the object: leave it out", args[0])
	}
	k, err := o.at.machines(ctx, s, files)
	if err != nil {
		return err
	}
	name := strings.Join(args, "")
	it, err := k.find(ctx, s, []string{o.object}, func(m *fsm.Machine) bool { return name == "" || m.Name() == name })
	if err != nil {
		return err
	}
	told, err := describe.New(it.driver).Phase(it.object.PhaseIn(it.driver))
	if err != nil {
		return err
	}
	told.Live = &describe.Live{Object: it.object.String(), Status: it.object.Machine}
	told.Live.Status.OnDelete = it.driver.Deletion(it.object.Machine)
	return show(s.out, o.output, told, (*describe.Phase).Text)
}

func (o *explainOptions) whole(s streams, args []string) error {
	machines, err := readMachines(s, args)
	if err != nil {
		return err
	}
	for i, m := range machines {
		if i > 0 && o.output.value == "text" {
			fmt.Fprintln(s.out)
		}
		if err := o.machine(s, m); err != nil {
			return err
		}
	}
	return nil
}

func (o *explainOptions) named(ctx context.Context, s streams, args []string) error {
	if len(args) == 2 {
		m, err := o.at.choose(ctx, s, args[1])
		if err != nil {
			return err
		}
		return o.phase(s, m, args[0])
	}
	k, _, cancel := o.at.quietly(ctx, s.err)
	defer cancel()
	if i := slices.IndexFunc(k.all, func(c candidate) bool { return c.name == args[0] }); i >= 0 {
		m, err := k.all[i].machine(live.Object{})
		if err != nil {
			return err
		}
		return o.machine(s, m)
	}
	m, err := k.having("", args[0])
	if err != nil {
		return err
	}
	return o.phase(s, m, args[0])
}

func (o *explainOptions) machine(s streams, m *fsm.Machine) error {
	told := describe.New(m).Machine()
	return show(s.out, o.output, told, (*describe.Machine).Text)
}

func (o *explainOptions) phase(s streams, m *fsm.Machine, name string) error {
	told, err := describe.New(m).Phase(name)
	if err != nil {
		return err
	}
	return show(s.out, o.output, told, (*describe.Phase).Text)
}

// noted says once for each reason why what is shown of objects may be old.
func noted(s streams, objects ...live.Object) {
	told := map[string]bool{"": true}
	for _, o := range objects {
		if !told[o.Note] {
			say(s.err, "‼ %s: %s", o, o.Note)
		}
		told[o.Note] = true
	}
}
