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
		Use:   "status [[KIND] NAME]",
		Short: "Tell where an object stands, why it does not move, and what to do next",
		Long: `Tell where an object that a machine drives stands, of any kind: the phases that were
passed, the present one and those ahead, the step, why it does not move, what is held, what
a deletion would do, and what to do next; of a migration also how far the copy is, and how
long v1 has been locked. It changes nothing.

The machine file is that of -f, else the one that the object's manager has published
(kubectl get machinedefinitions), else the one in this program, and then stderr says so.
Where the object stands is from its MachineState; where you may not read machinestates, it
says that the answer is from the status of the object alone.

NAME may be KIND/NAME. Without KIND, all kinds that a machine drives are looked through.
Without NAME it is the only object of a kind without a namespace, else the only one in the
namespace, and the right to list them is needed.

Where no manager writes the status any more, it says since when and why, as far as you
may read the lease and the pods of the manager: stale of -o json. States of objects that are
gone are listed too: what they hold is being given back by the manager.

-w follows it until it ends, or rests and is Ready: live on a terminal, else with a line on
stderr for each change. The last state is on stdout.

Exit codes: 0 the state was told, with -w: it ended well, or was deleted; with -w also: 1
Failed, 3 --timeout was over, 4 it waits for a person. 2 it could not be read.`,
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
	flags.BoolVarP(&o.watch, "watch", "w", false, "follow it until it ends")
	flags.BoolVar(&o.tree, "tree", false, "every kind and every conflict, also those that are done")
	flags.DurationVar(&o.timeout, "timeout", 0, "with -w: how long to follow it; 0 is for ever")
	flags.StringVarP(&o.file, "file", "f", "", "machine file to tell it by; default: the one that the manager has published")
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
		fmt.Fprintln(s.err, "this status is stale: "+first.Stale.Why)
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
	fmt.Fprintln(s.err, missing)
	return o.show(s.out, it, statusview.Overview{
		Kind: it.kind.Kind, Machine: it.name, Now: time.Now().UTC(), Phases: []statusview.Phase{}, Orphans: statusview.OrphansOf(it.driver, it.left, by),
	})
}

func (o *statusOptions) show(to io.Writer, it target, seen statusview.Overview) error {
	return o.output.print(to, shown{kind: "Overview", of: it.kind, name: seen.Name, value: seen, text: func(to io.Writer, wide bool) error {
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
		Why:     fmt.Sprintf("etcd is full, and takes no write of anybody: %s %s can neither go on nor give back (%v)", o.Kind.Kind, o.Name, err),
		Do:      "defragment etcd, raise its quota (--quota-backend-bytes), and lift the alarm: then everything is given back",
		Command: "etcdctl alarm disarm",
	}
	if o.Stale != nil { // a full etcd takes no renewal of a lease either
		full.Since = o.Stale.Since
	}
	return full
}
