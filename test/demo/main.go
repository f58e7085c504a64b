// Command demo migrates a whole Calico cluster while you watch: `make demo`.
//
// It plays the cluster operator. It starts a control plane of its own, fills it,
// runs bin/manager against it, and then does what an operator would do, by
// kubectl where an operator would use kubectl. What it claims at the end it has
// measured or compared itself: it takes no word of the product's for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once; the cluster's keeper cleans up then.
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// options are what a user may choose.
type options struct {
	objects  int
	seed     uint64
	keep     bool
	practice bool
	// phasesDir is where the manager of a practice cluster finds machine files; empty: nowhere.
	phasesDir string
	// managerArgs are given to that manager besides.
	managerArgs []string
}

func command() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Migrate a Calico cluster made from nothing",
		Long: `Migrate a Calico cluster made from nothing: a control plane, simulated nodes,
Calico's components, v1 objects of all 21 kinds, an aggregated API server, and
the manager. One conflict is in the way and is resolved. The exit code is 0 only
if everything arrived, clients of projectcalico.org/v3 never waited for long,
and nothing of v1 is left.

It needs bin/manager and bin/tools: run it by make demo.
CALICO_CRDS=DIR takes Calico's real CRDs from DIR (v1, v3, admission).
NO_COLOR or TERM=dumb or a pipe gives plain lines.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := newStory(o, newTerminal(os.Stdout))
			if (o.phasesDir != "" || len(o.managerArgs) > 0) && !o.practice {
				return errors.New("--phases-dir, --manager-arg: the demo runs the shipped machines: give --practice, too")
			}
			if o.practice {
				return s.run(cmd.Context(), s.opening())
			}
			return s.run(cmd.Context(), s.whole())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.objects, "objects", 1000, "number of v1 objects; never fewer than about 150, so that every kind is there")
	f.Uint64Var(&o.seed, "seed", 1, "what the objects are made of: the same seed gives the same objects")
	f.BoolVar(&o.practice, "practice", false, "only set the scene and start the manager, and leave the migration to you, until Ctrl-C")
	f.StringVar(&o.phasesDir, "phases-dir", "", "with --practice: directory of machine files that the manager runs besides")
	f.StringArrayVar(&o.managerArgs, "manager-arg", nil, "with --practice: argument of the manager, such as --allow-http-host=127.0.0.1:8080; repeatable")
	f.BoolVar(&o.keep, "keep", os.Getenv("KEEP") == "1", "leave the cluster running at the end (also KEEP=1)")
	return cmd
}
