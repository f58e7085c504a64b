package runner

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/definitions"
	"github.com/phasegate/phasegate/controllers/rights"
	"github.com/phasegate/phasegate/fsm"
)

// Who needs what no action and no guard does, as Need.For has it.
const (
	forRunner      = "every pass"
	forDefinitions = "showing the machines in force"
	forEvents      = "Events"
	forChecks      = "checks"
	forController  = "the controller"
)

// Needs is all that the controller of a machine must be allowed to do, each right
// once, for all who need it. Plurals are those that Kubernetes would guess from a
// kind: no API server is asked.
func (p *Program[T]) Needs(machine *fsm.Machine) []rights.Need {
	group, plural := resourceOf(machine.For().APIVersion, machine.For().Kind)
	lists := [][]rights.Need{
		p.NeedsOfAny(),
		rights.Flatten(forRunner, rights.Rule("get list watch patch", group, plural), rights.Rule("patch", group, plural+"/status")),
	}
	for _, w := range machine.Watches() {
		group, plural := resourceOf(w.APIVersion, w.Kind)
		var names []string
		who := "watch of " + w.Kind
		if w.Name != "" {
			names, who = []string{w.Name}, who+" "+w.Name
		}
		lists = append(lists, rights.Flatten(who, rights.Rule("list watch", group, plural, names...)))
	}
	unused := machine.Bindings().Unused(machine.Definition())
	for name, action := range p.Actions {
		if !slices.Contains(unused, name) {
			lists = append(lists, rights.Flatten(name, action.Rights...))
		}
	}
	for _, name := range machine.Guards() {
		lists = append(lists, rights.Flatten("guard "+name, p.Guards[name].Rights...))
	}
	return rights.Union(lists...)
}

// NeedsOfAny are those of Needs that every machine has, whatever it is for.
func (p *Program[T]) NeedsOfAny() []rights.Need {
	return rights.Union(
		rights.Flatten(forRunner, rights.Rule("get list watch create patch delete", v1alpha1.Group, "machinestates")),
		rights.Flatten(forDefinitions, definitions.Rights),
		rights.Flatten(forEvents, rights.Rule("create patch", "events.k8s.io", "events")),
		rights.Flatten(forChecks, rights.Asking), // what they ask for includes the rights of any machine
		rights.Flatten(forController, p.Rights...))
}

func resourceOf(apiVersion, kind string) (group, resource string) {
	guess, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return guess.Group, guess.Resource
}
