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

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

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
		Use:   "status [[KIND] NAME]",
		Short: "Show where an object stands, why it waits, and what to do next",
		Long: `Show an object of any kind that a machine drives: its phases, step, what it waits for and
holds, what a deletion would do, and what to do next; of a migration also the progress of
the copy, and how long v1 has been locked. Changes nothing.

The machine file is that of -f, else the one that the object's manager has published
(kubectl get machinedefinitions), else the compiled-in one, with a note on stderr.
The state comes from the MachineState. Without permission to read machinestates, it comes
from the object's status alone, with a note.

NAME may be KIND/NAME. Without KIND, all kinds that machines drive are searched. Without
NAME, it is the only object of a cluster-scoped kind, else the only one in the namespace;
this needs permission to list.

If the manager no longer writes the status, the output says since when and why, as far as
you may read the manager's lease and pods (stale in -o json). States of deleted objects
are listed too: the manager releases what they hold.

-w follows the object until it ends, or is steady and Ready: live on a terminal, else one
line per change on stderr. The last state goes to stdout.

Exit codes: 0 shown, 2 error. With -w: 0 ended well or deleted, 1 Failed, 2 error,
3 timeout, 4 waiting for a person.`,
		Example: `  kubectl phasegate status
  kubectl phasegate status to-v3 -w
  kubectl phasegate status databaserestore monday -n bookshop
  kubectl phasegate status to-v3 --tree -o wide
  kubectl phasegate status to-v3 -o jsonpath='{.progress.done}{"\n"}'`,
		Args: cobra.MaximumNArgs(2),
	}
	o.at = clusterFlags(cmd)
	o.output = outputFlags(cmd, "table", "wide")
	cmd.ValidArgsFunction = completeObjects(o.at)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "follow the object until it ends")
	flags.BoolVar(&o.tree, "tree", false, "show all kinds and conflicts, also those done")
	flags.DurationVar(&o.timeout, "timeout", 0, "with -w: how long to follow; 0 means no limit")
	flags.StringVarP(&o.file, "file", "f", "", "machine file; default: the published one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args) }
	return cmd
}

func (o *statusOptions) run(ctx context.Context, s streams, args []string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	var files []string
	if o.file != "" {
		files = []string{o.file}
	}
	k, err := o.at.machines(ctx, s, files)
	if err != nil {
		return err
	}
	it, err := k.find(ctx, s, args, func(*fsm.Machine) bool { return true })
	if err != nil {
		return o.onlyLeft(s, it, k.caller, err)
	}
	look := looker{known: k, target: it}
	first, err := look.overview(ctx, it.object)
	if err != nil {
		return err
	}
	if first.Stale != nil {
		say(s.err, "this status is stale: %s", first.Stale.Why)
	}
	first.Orphans = statusview.OrphansOf(it.driver, it.left, k.caller)
	if !o.watch {
		return o.show(s.out, it, first)
	}
	f := follower{look: look.again, patience: patience}
	var end sight
	err = finish(ctx, s, o.timeout, func(ctx context.Context) (err error) {
		end, err = f.follow(ctx, first, s, statusview.View{Tree: o.tree, Wide: o.output.format == "wide"})
		return err
	})
	if shown := o.show(s.out, it, end.overview); shown != nil {
		return shown
	}
	if err != nil {
		return err
	}
	return end.code(s)
}

// onlyLeft shows what is left of objects that are gone, where there is no other.
func (o *statusOptions) onlyLeft(s streams, it target, by statusview.Caller, missing error) error {
	if len(it.left) == 0 {
		return missing
	}
	say(s.err, "%v", missing)
	return o.show(s.out, it, statusview.Overview{
		Kind: it.kind.Kind, Machine: it.name, Now: time.Now().UTC(), Phases: []statusview.Phase{}, Orphans: statusview.OrphansOf(it.driver, it.left, by),
	})
}

func (o *statusOptions) show(to io.Writer, it target, seen statusview.Overview) error {
	return display(to, o.output, shown[statusview.Overview]{kind: "Overview", of: it.kind, name: seen.Name, value: seen, text: func(seen statusview.Overview, to io.Writer, wide bool) error {
		return seen.Text(to, statusview.View{Tree: o.tree, Wide: wide, Style: styleFor(to)})
	}})
}

// looker looks at one object again and again, by the machine that drives it at that moment.
type looker struct {
	*known
	target
}

// again reads the object anew. Another one of the same name is not it.
func (l *looker) again(ctx context.Context) (statusview.Overview, error) {
	o, err := live.Get(ctx, l.client, l.driver, types.NamespacedName{Namespace: l.object.Namespace, Name: l.object.Name})
	if err != nil {
		return statusview.Overview{}, err
	}
	if o.UID != l.object.UID {
		return statusview.Overview{}, errReplaced
	}
	if err := l.reload(ctx, o); err != nil {
		return statusview.Overview{}, err
	}
	return l.overview(ctx, o)
}

// reload takes the machine over that drives the object by now.
func (l *looker) reload(ctx context.Context, o live.Object) error {
	if o.Machine.Revision == l.driver.Revision() || len(l.published) == 0 {
		return nil
	}
	now, err := l.anew(ctx, l.candidate)
	if err != nil {
		return err
	}
	l.candidate = now
	l.driver, err = now.machine(o)
	return err
}

func (l *looker) overview(ctx context.Context, o live.Object) (statusview.Overview, error) {
	o.LookForManager(ctx, l.client, time.Now())
	if full := unwritable(ctx, l.client, o); full != nil {
		o.Stale = full
	}
	return statusview.Of(l.driver, o, time.Now(), l.caller)
}

// unwritable says that what is shown is old, because etcd is full and takes no write; nil where it does, and where
// that cannot be found out. It asks for what is there already, and so writes nothing: a full etcd refuses that before
// it looks.
func unwritable(ctx context.Context, c client.Client, o live.Object) *live.Stale {
	if meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionReady) || meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionStalled) {
		return nil
	}
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	if !apierrors.StoreFull(err) {
		return nil
	}
	full := &live.Stale{
		Why:     fmt.Sprintf("etcd is full and refuses all writes: %s %s can neither continue nor release anything (%v)", o.Kind.Kind, o.Name, err),
		Do:      "defragment etcd, raise its quota (--quota-backend-bytes), and disarm the alarm: then everything is released",
		Command: "etcdctl alarm disarm",
	}
	if o.Stale != nil { // a full etcd takes no renewal of a lease either
		full.Since = o.Stale.Since
	}
	return full
}
