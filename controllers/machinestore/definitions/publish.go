// Package definitions shows which machines are in force, as MachineDefinitions: managers
// publish the files that they run, and programs that show objects read them.
//
// No manager reads a MachineDefinition: what a machine does never depends on one.
package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// Rights are what a Publisher needs.
var Rights = rbac.Rule("list create patch delete", v1alpha1.Group, "machinedefinitions")

const (
	// repairEvery is how soon a definition comes back that was edited or deleted.
	repairEvery = time.Minute
	// answerLimit bounds the requests of one look.
	answerLimit = 30 * time.Second
)

// Publisher keeps the MachineDefinitions of an installation as the machines that it runs.
// A look that finds nothing to change writes nothing. Where they cannot be written, the log
// says so once for each reason, and the machines run all the same.
type Publisher struct {
	Client client.Client
	Store  *machinestore.Store
	// Runs tells whether this process runs the machine of a name.
	Runs func(machine string) bool
	// Manager is the installation, as in status.manager of a MachineState.
	Manager string
	Log     logr.Logger

	// failure is the last one that the log has.
	failure string
	// published are the names of the definitions that this process has wanted so far.
	published map[string]bool
}

// NeedLeaderElection is true: of the processes of an installation one writes.
func (p *Publisher) NeedLeaderElection() bool { return true }

// Start publishes until ctx is done. It is called once, by the manager.
func (p *Publisher) Start(ctx context.Context) error {
	for {
		changed := p.Store.Changed()
		p.report(p.Publish(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(repairEvery):
		}
	}
}

func (p *Publisher) report(err error) {
	if err == nil {
		p.failure = ""
		return
	}
	if err.Error() != p.failure {
		p.Log.Error(err, "the machines in force cannot be shown to kubectl phasegate, and run all the same; tried again every minute")
	}
	p.failure = err.Error()
}

// Publish makes the definitions what they should be, once. It may be called any number of
// times: each write is a create, or has what was read as its precondition.
func (p *Publisher) Publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	have := &v1alpha1.MachineDefinitionList{}
	if err := p.Client.List(ctx, have, client.MatchingLabels{v1alpha1.ManagerLabel: v1alpha1.ManagerKey(p.Manager)}); err != nil {
		return fmt.Errorf("list MachineDefinitions: %w: are the CRD %s and the right to list it there? helm upgrade brings both", err, v1alpha1.MachineDefinitionCRD)
	}
	var faults []error
	for _, c := range changes(p.wanted(), slices.DeleteFunc(have.Items, p.foreign)) {
		faults = append(faults, c.write(ctx, p.Client))
	}
	return errors.Join(faults...)
}

// wanted are the definitions of the machines that run.
func (p *Publisher) wanted() []v1alpha1.MachineDefinition {
	var all []v1alpha1.MachineDefinition
	for _, name := range p.Store.Names() {
		if p.Runs(name) {
			all = append(all, definitionOf(p.Store.Of(name).InForce(), p.Manager))
		}
	}
	if p.published == nil {
		p.published = map[string]bool{}
	}
	for _, d := range all {
		p.published[d.Name] = true
	}
	return all
}

// foreign tells of a definition that is another process's to delete: those that elect no leader have no name that would
// tell them apart.
func (p *Publisher) foreign(d v1alpha1.MachineDefinition) bool {
	return p.Manager == "" && !p.published[d.Name]
}

func definitionOf(m *fsm.Machine, manager string) v1alpha1.MachineDefinition {
	d := v1alpha1.MachineDefinition{Spec: v1alpha1.MachineDefinitionSpec{
		Machine: m.Name(), For: m.For(), Manager: manager, Revision: m.Revision(), File: v1alpha1.Shorten(m.File(), 1024), Text: string(m.Definition().Text()),
	}}
	d.Name = v1alpha1.MachineDefinitionName(m.Name(), manager)
	d.Labels = map[string]string{v1alpha1.ManagerLabel: v1alpha1.ManagerKey(manager)}
	return d
}

// change is one write. Without have it is a create, without want a deletion.
type change struct{ want, have *v1alpha1.MachineDefinition }

// changes is pure: what has to be written so that what there is becomes what is wanted.
func changes(want, have []v1alpha1.MachineDefinition) []change {
	var all []change
	there := map[string]*v1alpha1.MachineDefinition{}
	for i := range have {
		there[have[i].Name] = &have[i]
	}
	for i := range want {
		now := there[want[i].Name]
		delete(there, want[i].Name)
		if now == nil || now.Spec != want[i].Spec {
			all = append(all, change{&want[i], now})
		}
	}
	for i := range have {
		if there[have[i].Name] != nil {
			all = append(all, change{have: &have[i]})
		}
	}
	return all
}

func (c change) write(ctx context.Context, to client.Client) error {
	switch {
	case c.have == nil:
		if err := to.Create(ctx, c.want.DeepCopy()); err != nil {
			return fmt.Errorf("create MachineDefinition %s: %w", c.want.Name, err)
		}
	case c.want == nil:
		err := to.Delete(ctx, c.have, client.Preconditions{UID: new(types.UID(c.have.UID)), ResourceVersion: &c.have.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete MachineDefinition %s, whose machine does not run: %w", c.have.Name, err)
		}
	default:
		err := patch.MutateAndSwap(ctx, to, c.have, func(d *v1alpha1.MachineDefinition) { d.Spec = c.want.Spec })
		if err != nil {
			return fmt.Errorf("change MachineDefinition %s: %w", c.want.Name, err)
		}
	}
	return nil
}
