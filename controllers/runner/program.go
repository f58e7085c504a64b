// Package runner drives objects through a machine on an API server: get the
// object, ask the engine what to do, do it, write the status once, come back.
//
// It is generic over the kind and knows nothing of what the actions do. It is
// the only package that writes a status.
package runner

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// MachineObject is an object of whatever kind with a machine's status. Its methods hand out the object's own memory.
type MachineObject interface {
	client.Object
	MachineStatus() *v1alpha1.MachineStatus
	Conditions() *[]metav1.Condition
}

// Object is a kind whose status a machine drives; T is the kind itself.
type Object[T any] interface {
	MachineObject
	// ObservedGeneration hands out memory, too. It is 0 or less where it is not known, as on CRDs of others.
	ObservedGeneration() *int64
	// SetDisplay sets what `kubectl get` shows.
	SetDisplay(phase, message string)
	// CopyStatusFrom makes the status a deep copy of another object's.
	CopyStatusFrom(T)
}

// Action is the work of a step. Do must be idempotent: after a crash it runs
// again, and an action that had succeeded must then change nothing. It returns
// the outputs that its spec declares, or an error: fsm.Wait for "not yet",
// fsm.Terminal for "never", anything else is retried.
type Action[T Object[T]] struct {
	fsm.ActionSpec
	// Rights are what Do must be allowed to do. Those that it takes through its
	// scope, on the object itself, are the runner's.
	Rights []rbacv1.PolicyRule
	// Access is what Do must be allowed to do besides, by the parameters of a call as the file has them: a text may hold
	// ${…}. Where that hides the kind, so does the answer. nil: nothing.
	Access func(with fsm.Params) []rbac.Access
	Do     func(ctx context.Context, s *Scope[T]) (map[string]any, error)
}

// Guard answers a question about the world. It must change nothing. The text
// says what was seen, for people who wonder why an exit is closed.
type Guard[T Object[T]] struct {
	Doc string
	// Rights are what Open must be allowed to do.
	Rights []rbacv1.PolicyRule
	// Open is asked about an object, of the machine of this pass.
	Open func(ctx context.Context, machine *fsm.Machine, obj T) (open bool, seen string, err error)
}

// Program is all that machines of a kind may name.
type Program[T Object[T]] struct {
	// New makes an empty object.
	New     func() T
	Actions map[string]Action[T]
	Guards  map[string]Guard[T]
	// Roles are what the program asks machines for, since it knows no names of theirs.
	Roles map[string]fsm.Role
	// Rights are what a controller of the kind needs whatever its machine does.
	// What runner itself does, and the machine's watches, are not among them.
	Rights []rbacv1.PolicyRule
	// Watches are kinds whose objects wake the machine's, besides those that the machine
	// names: which they are depends on how the program is set up, and the file does not.
	Watches []v1alpha1.Watch
	// Made is a selector of labels that whatever the program makes bears: nothing else of those kinds is cached, where
	// a watch is for owned objects and no call of the file makes any. Empty: all are.
	Made string
	// References are kinds that specs name: an object of such a kind that is watched wakes those that name it alone.
	References []Reference[T]
	// Decorate derives the kind's own status fields from the machine's, before
	// each write; nil derives nothing. It must be a pure function of the machine and the object. While the
	// machine does not have the object's phase it is not called: that object is named as
	// another revision has it, and keeps what was derived last.
	Decorate func(machine *fsm.Machine, obj T)
	// Warned are types of conditions of which people hear: where a view is written in which one is False that was not,
	// or was for something else, an Event of its reason says its message. Whichever step or Decorate has set it, the Event
	// comes with the write, so that none is lost to a view that is written before the step runs.
	Warned []string
	// Spread repeats a type of condition where the CRD lets it, as another project does that
	// has a condition for each of several things; nil: none is repeated.
	Spread func(obj T)
	// Abridge takes out of a status of the kind what people need not see in the object: the MachineState has it. It is
	// called where the CRD keeps status.machine, after the runner has done the same for that. nil: nothing.
	Abridge func(obj T)
	// Stored is told what the API server has of an object, after each read and each
	// write of its status, for the kind's own metrics; nil: nobody asks. It may be
	// called from several goroutines and must not keep the object.
	Stored func(machine *fsm.Machine, obj T)
	// Contended is set where the controller of another project may drive the same objects: one whose status others
	// keep writing is looked at less often, unless it holds something or changes: each ten minutes at the least.
	Contended bool
	// Gone is told that an object does not exist any more, or is not driven any more;
	// nil: nobody asks. It may be an object of which Stored was never told.
	Gone func(key types.NamespacedName)
}

// Bindings are the names of the program, for fsm.Bind. One without a function is none of them: a machine file that
// names it is refused, and nothing that is nil is ever called.
func (p *Program[T]) Bindings() fsm.Bindings {
	b := fsm.Bindings{Actions: map[string]fsm.ActionSpec{}, Guards: map[string]string{}, Roles: p.Roles}
	for name, a := range p.Actions {
		if a.Do != nil {
			b.Actions[name] = a.ActionSpec
		}
	}
	for name, g := range p.Guards {
		if g.Open != nil {
			b.Guards[name] = g.Doc
		}
	}
	return b
}

// Reference is a kind of objects that specs name, each in the namespace of its own object.
type Reference[T Object[T]] struct {
	APIVersion, Kind string
	// Names are those that the spec of an object names.
	Names func(T) []string
	// Read is what actions read of a named object besides its spec: no other change of its status or metadata wakes
	// anybody.
	Read func(*unstructured.Unstructured) string
}

// Scope is what an action may use. It is gone when the action returns.
type Scope[T Object[T]] struct {
	// Object as it is when the action begins, for reading: with what this pass has
	// reported and with its machine's state, of which all is written but what was released
	// or finished since. Changes go through Report.
	Object T
	// Machine is the one of this pass.
	Machine *fsm.Machine
	// StepID is fsm.Decision.StepID: the same for every call of the step, and for no other one.
	StepID string
	// With are the step's parameters.
	With  fsm.Params
	Clock clock.Clock

	pass     *pass[T]
	recorder events.EventRecorder
}
