package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// forRunner is who needs what no action and no guard does, as Need.For has it.
const forRunner = "every pass"

// Needs is all that the controller of a machine must be allowed to do, each right
// once, for all who need it. What a call does with objects whose kind an expression
// says is not among it: see Unclear.
func (p *Program[T]) Needs(machine *fsm.Machine, resources rbac.Resources) []rbac.Need {
	group, plural := resources(machine.For().APIVersion, machine.For().Kind)
	lists := [][]rbac.Need{
		p.NeedsOfAny(),
		rbac.Flatten(forRunner, rbac.Rule("get list watch patch", group, plural), rbac.Rule("patch", group, plural+"/status")),
	}
	for _, w := range slices.Concat(machine.Watches(), p.Watches) {
		group, plural := resources(w.APIVersion, w.Kind)
		var names []string
		who := "watch of " + w.Kind
		if w.Name != "" {
			names, who = []string{w.Name}, who+" "+w.Name
		}
		lists = append(lists, rbac.Flatten(who, rbac.Rule("list watch", group, plural, names...)))
	}
	unused := machine.Bindings().Unused(machine.Definition())
	for name, action := range p.Actions {
		if !slices.Contains(unused, name) {
			lists = append(lists, rbac.Flatten(name, action.Rights...))
		}
	}
	lists = append(lists, p.needsOfCalls(machine, resources))
	for _, name := range machine.Guards() {
		lists = append(lists, rbac.Flatten("guard "+name, p.Guards[name].Rights...))
	}
	return rbac.Union(lists...)
}

// NeedsOfAny are those of Needs that every machine has, whatever it is for.
func (p *Program[T]) NeedsOfAny() []rbac.Need {
	return rbac.Union(
		rbac.Flatten(forRunner, rbac.Rule("get list watch create patch delete", v1alpha1.Group, "machinestates")),
		rbac.Flatten("showing the machines in force", definitions.Rights),
		rbac.Flatten("Events", rbac.Rule("create patch", "events.k8s.io", "events")),
		rbac.Flatten("telling whether another installation is there", rbac.Rule("get", coordinationv1.GroupName, "leases")),
		rbac.Flatten("checks", rbac.Asking), // what they ask for includes the rights of any machine
		rbac.Flatten("the controller", p.Rights...))
}

// needsOfCalls are those that follow from the parameters of calls.
func (p *Program[T]) needsOfCalls(machine *fsm.Machine, resources rbac.Resources) []rbac.Need {
	var lists [][]rbac.Need
	for _, call := range machine.Calls() {
		for _, access := range p.accessOf(call) {
			if access.Kind != "" {
				lists = append(lists, access.Needs(call.By, resources))
			}
		}
	}
	return rbac.Union(lists...)
}

// Unclear are the calls of a machine whose rights cannot be known before they are made:
// an expression says the kind of the object.
func (p *Program[T]) Unclear(machine *fsm.Machine) []Unclear {
	var unclear []Unclear
	for _, call := range machine.Calls() {
		for _, access := range p.accessOf(call) {
			if access.Kind == "" {
				unclear = append(unclear, Unclear{By: call.By, Subresource: access.Subresource, Verbs: access.Verbs})
			}
		}
	}
	return unclear
}

// Unclear is a call that needs rights to objects of a kind that is not known yet.
type Unclear struct {
	// By is the step that makes the call.
	By string
	// Subresource of the objects; empty: they themselves.
	Subresource string
	Verbs       []string
}

func (p *Program[T]) accessOf(call fsm.Call) []rbac.Access {
	if access := p.Actions[call.Action].Access; access != nil {
		return access(call.With)
	}
	return nil
}

// selectorOf is that of the labels of all objects that a watch is about.
func (p *Program[T]) selectorOf(machine *fsm.Machine, w v1alpha1.Watch) string {
	if !w.Owned {
		return ""
	}
	for _, call := range machine.Calls() {
		for _, access := range p.accessOf(call) {
			if access.Kind == "" || access.Kind == w.Kind {
				return "" // it bears what labels the file says
			}
		}
	}
	return p.Made
}

// withMissing adds to the error of an action for want of a right all rights that the machine
// lacks: granted one by one, they would be met phase by phase.
func (r *Reconciler[T]) withMissing(ctx context.Context, p *pass[T], err error) error {
	if err == nil || !apierrors.NotAllowed(err) {
		return err
	}
	namespace := p.stored.GetNamespace()
	text, failed := r.missing.remember(ctx, [2]string{namespace, p.machine.Revision()}, r.Clock.Now(), func(ctx context.Context) (string, error) {
		needs := r.Program.needsOfCalls(p.machine, rbac.Served(r.Client.RESTMapper()))
		for i := range needs {
			if needs[i].Namespace == "" {
				needs[i].Namespace = namespace // a role there is enough
			}
		}
		missing, err := rbac.Missing(ctx, r.Client, needs)
		return inWords(missing), err
	})
	if failed != nil || text == "" {
		return err // what is known is said
	}
	return fmt.Errorf("%w; in all, the manager lacks for machine %s: %s; kubectl phasegate scaffold --only=rbac prints the role", err, p.machine.Name(), text)
}

func inWords(missing []rbac.Need) string {
	var parts []string
	for _, n := range rbac.ByTarget(missing) {
		parts = append(parts, fmt.Sprintf("%s (for %s)", n, strings.Join(n.For, ", ")))
	}
	return strings.Join(parts, "; ")
}
