package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/controllers/overview"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// statusOptions are what the flags say.
type statusOptions struct {
	at          *cluster
	output      *output
	file        string
	watch, tree bool
	timeout     time.Duration
}

func statusCommand(s streams) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Tell where a migration stands, why it does not move, and what to do next",
		Long: `Tell where a migration stands: the phases with the present one marked, the step, why
it does not move, what is held, what a deletion would do, how far the copy is, how
long v1 has been locked, and what to do next. It changes nothing. It reads the
DatastoreMigration and its MachineState; where you may not read machinestates, it says
that the answer is from the status of the object alone. Without NAME it is the only one
that there is, and the right to list them is needed.

Where no manager writes the status any more, it says since when and why, as far as you
may read the lease and the pods of the manager: stale of -o json.

States of migrations that are gone are listed too: what they hold is being given back by
the manager.

-w follows it until it ends: live on a terminal, else with a line on stderr for each
change. The last state is on stdout.

Exit codes: 0 the state was told, with -w: Complete, or deleted; with -w also: 1 Failed,
3 --timeout was over, 4 it waits for a person. 2 it could not be read.`,
		Example: `  kubectl phasegate status
  kubectl phasegate status to-v3 -w
  kubectl phasegate status to-v3 --tree -o wide
  kubectl phasegate status to-v3 -o jsonpath='{.progress.done}{"\n"}'`,
		Args: cobra.MaximumNArgs(1),
	}
	o.at = clusterFlags(cmd)
	o.output = outputFlags(cmd, "table", "wide")
	cmd.ValidArgsFunction = completeMigrations(o.at)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "follow it until it ends")
	flags.BoolVar(&o.tree, "tree", false, "every kind and every conflict, also those that are done")
	flags.DurationVar(&o.timeout, "timeout", 0, "with -w: how long to follow it; 0 is for ever")
	flags.StringVarP(&o.file, "file", "f", "", "machine file that the manager runs; default: the compiled-in one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args) }
	return cmd
}

func (o *statusOptions) run(ctx context.Context, s streams, args []string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	machine, err := o.machine(s)
	if err != nil {
		return err
	}
	c, _, err := o.at.connect()
	if err != nil {
		return err
	}
	dm, orphans, err := findMigration(ctx, c, args)
	if err != nil {
		return o.onlyOrphans(s, machine, orphans, err)
	}
	dm.LookForManager(ctx, c, time.Now())
	if full := unwritable(ctx, c, dm); full != nil {
		dm.Stale = full
	}
	if dm.Stale != nil {
		fmt.Fprintln(s.err, "this status is stale: "+dm.Stale.Why)
	}
	first := overview.Of(machine, dm, time.Now())
	first.Orphans = overview.OrphansOf(machine, orphans)
	if !o.watch {
		return o.show(s.out, first)
	}
	f := follower{machine: machine, read: reader(c, dm.Name, dm.UID), patience: patience}
	var end watched
	err = finish(ctx, s, o.timeout, func(ctx context.Context) (err error) {
		end, err = f.follow(ctx, first, s, overview.View{Tree: o.tree, Wide: o.output.format == "wide"})
		return err
	})
	if shown := o.show(s.out, end.last); shown != nil {
		return shown
	}
	if err != nil {
		return err
	}
	return end.code(s)
}

// onlyOrphans shows what is left of migrations that are gone, where there is no other.
func (o *statusOptions) onlyOrphans(s streams, m *fsm.Machine, orphans []live.Orphan, missing error) error {
	if len(orphans) == 0 {
		return missing
	}
	fmt.Fprintln(s.err, missing)
	return o.show(s.out, overview.Overview{Machine: m.Name(), Now: time.Now().UTC(), Phases: []overview.Phase{}, Orphans: overview.OrphansOf(m, orphans)})
}

// machine is the one of -f, else the compiled-in one.
func (o *statusOptions) machine(s streams) (*fsm.Machine, error) {
	what := o.file
	if what == "" {
		what = datastoremigration.MachineName
	}
	return chooseMachine(s, what, "")
}

func (o *statusOptions) show(to io.Writer, seen overview.Overview) error {
	text := func(wide bool) func(io.Writer) error {
		return func(to io.Writer) error {
			return seen.Text(to, overview.View{Tree: o.tree, Wide: wide, Style: styleFor(to)})
		}
	}
	return o.output.print(to, shown{
		kind: "Overview", of: migrationKind, name: seen.Name, value: seen,
		texts: texts{"table": text(false), "wide": text(true)},
	})
}

// reader reads one migration again and again. Another one of the same name is not it.
func reader(c client.Client, name string, uid types.UID) readMigration {
	return func(ctx context.Context) (live.Migration, error) {
		dm, err := live.GetMigration(ctx, c, name)
		if err == nil && dm.UID != uid {
			err = errReplaced
		}
		if err == nil {
			dm.LookForManager(ctx, c, time.Now())
		}
		return dm, err
	}
}

// unwritable says that what is shown is old, because etcd is full and takes no write; nil where it does, and where
// that cannot be found out. It asks for what is there already, and so writes nothing: a full etcd refuses that before
// it looks.
func unwritable(ctx context.Context, c client.Client, dm live.Migration) *live.Stale {
	if !meta.IsStatusConditionTrue(dm.Status.Conditions, fsm.ConditionReconciling) {
		return nil
	}
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	if !apierrors.StoreFull(err) {
		return nil
	}
	full := &live.Stale{
		Why:     fmt.Sprintf("etcd is full, and takes no write of anybody: the migration can neither go on nor give back (%v)", err),
		Do:      "its copies are deleted first of all; defragment etcd, raise its quota (--quota-backend-bytes), and lift the alarm: then everything is given back",
		Command: "etcdctl alarm disarm",
	}
	if dm.Stale != nil { // a full etcd takes no renewal of a lease either
		full.Since = dm.Stale.Since
	}
	return full
}
