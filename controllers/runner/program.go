// Package runner drives objects through a machine on an API server: get the
// object, ask the engine what to do, do it, write the status once, come back.
//
// It is generic over the kind and knows nothing of what the actions do. It is
// the only package that writes a status.
package runner

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

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
	// Releases tells that the action releases an effect: it is called until it succeeds, also when the object is gone.
	Releases bool
	// With are the step's parameters.
	With  fsm.Params
	Clock clock.Clock

	pass     *pass[T]
	recorder events.EventRecorder
}

// Reconciler drives the objects of one kind. All its fields are set before the
// first reconcile and never change.
type Reconciler[T Object[T]] struct {
	// Client must read from the API server, not from a cache: the stored phase is
	// compared and swapped, and a stale one only costs repeats.
	Client client.Client
	// Machine answers the machine in force. It is asked once in each pass, which
	// ends with the machine that it began with.
	Machine func() *fsm.Machine
	Program *Program[T]
	Clock   clock.WithTickerAndDelayedExecution
	// Random answers numbers in [0,1) for the jitter of retries; nil: no jitter.
	Random   func() float64
	Recorder events.EventRecorder
	Metrics  *Metrics
	// Shape answers what the CRD of the kind keeps of a status, or why objects of the kind
	// cannot be driven at this moment. Nil: it keeps everything.
	Shape func() (*Shape, error)
	// Manager names the installation that this process belongs to, as the lease that its processes share: a state says which one
	// drives its object. Empty: it claims nothing.
	Manager string
	// Lease reads the lease of the manager of another installation. Nil: whoever comes last drives an object.
	Lease func(ctx context.Context, manager string) (*coordinationv1.Lease, error)
	// States are the names of the states that say they are of an object of this name; nil: nothing is ever left.
	States func(types.NamespacedName) []string
	// Installed tells whether there is a CRD of the kind; it is asked before the objects of a
	// kind that is not served are taken to be gone. Nil: they never are.
	Installed func(context.Context) (bool, error)
	// Tracing is told of each pass and each step; nil: the provider of the whole
	// process, which does nothing unless the program has set one.
	Tracing trace.TracerProvider
	// MaxRuns is how many runs of the machine a pass may make, one after each commit; 0 means 32. With 1, a test
	// sees what is stored between two of them.
	MaxRuns int

	// due is what fsm.Observation.Due of the next pass is: what a look that changes nothing does not write.
	due        memory[time.Time]
	contention memory[contended]
	told       memory[string] // whom an object was left to
	missing    missing
	semaphore  *semaphore
	holders    holders
	unserved   unserved
	restarts   restarts
	// references is nil where nobody asks which objects name which others.
	references *references
}

// pass is the notebook of one reconcile.
type pass[T Object[T]] struct {
	by *Reconciler[T]
	// key names what the pass is about in its queue.
	key     types.NamespacedName
	machine *fsm.Machine
	// run is that of this pass.
	run *fsm.Run
	// shape is what the CRD keeps of a status; nil: everything.
	shape *Shape
	// once: it is that of Once. The status itself is what actions see, and nothing is measured.
	once bool
	// gone: there is no object, only a state that holds something.
	gone bool

	// sending guards state, saved and stored, and is held during requests: progress is
	// written while an action runs. Take it before mu, never after.
	sending sync.Mutex
	// state is the truth, as the API server has it; nil: nothing is stored. spec is what it
	// is about.
	state *v1alpha1.MachineState
	spec  v1alpha1.MachineStateSpec
	saved map[string]v1alpha1.SavedText
	// stored is the object as the API server has it, whose status is a view of the state.
	// A write replaces it.
	stored T
	// behind: the view does not show all that is stored or reported. shownAt is when it was written last, or the
	// pass began.
	behind  bool
	shownAt time.Time
	// observed is the generation that what is stored is about; 0: not known.
	observed int64

	// mu guards work and is never held during a request: an action that reports
	// does not wait for the API server.
	mu sync.Mutex
	// work is the object as it should be: the state, and what this pass has not written yet.
	work T
	// reported: work has something for people that no write has shown yet.
	reported bool
	// settled: work is what a run says, not what was read.
	settled bool
	// fields: work has some of spec.status.
	fields bool
}

// contended is what is known of an object whose status others write.
type contended struct {
	// asked is what people ask for, as of the last answer.
	asked *metav1.PartialObjectMetadata
	// theirs is what others own of the status since the last answer.
	theirs []metav1.ManagedFieldsEntry
	// answers to writes of others, and until when there is no other one.
	answers int
	until   time.Time
}
