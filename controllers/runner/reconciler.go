package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// again is how soon a pass follows one that made progress.
	again = time.Nanosecond
	// maxRuns bounds the runs of a pass, so that an object whose phases follow each other without end leaves
	// the worker to others, and an edit of the machine file is seen.
	maxRuns = 32
	// unfitAgain is how soon an object that cannot be driven is looked at again.
	unfitAgain = 5 * time.Second
	// shapeAgain is how soon an object is looked at again whose CRD was not read yet.
	shapeAgain = 100 * time.Millisecond
)

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
	turns      *turns
	holders    holders
	unserved   unserved
	restarts   restarts
	// references is nil where nobody asks which objects name which others.
	references *references
}

func (r *Reconciler[T]) now() time.Time { return r.Clock.Now() }

// track tells those who measure what the API server has of an object.
func (r *Reconciler[T]) track(machine *fsm.Machine, obj T) {
	r.Metrics.Stored(machine, obj)
	if r.Program.Stored != nil {
		r.Program.Stored(machine, obj)
	}
}

// untrack tells them that an object is gone, or that nobody looks at it any more.
func (r *Reconciler[T]) untrack(machine *fsm.Machine, key types.NamespacedName) {
	r.due.drop(key)
	r.contention.drop(key)
	r.told.drop(key)
	r.references.put(key, nil)
	r.Metrics.Gone(machine, key)
	if r.Program.Gone != nil {
		r.Program.Gone(key)
	}
}

// forgetAll is for the end of a controller: whatever it knows gets old from then on.
func (r *Reconciler[T]) forgetAll(machine *fsm.Machine) {
	for _, key := range r.Metrics.objects.of(machine.Name()) {
		r.untrack(machine, key)
	}
}

func deepCopy[T Object[T]](obj T) T {
	return obj.DeepCopyObject().(T)
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
}

// errMoved says that an action is not the one any more that the object needs: it is being deleted,
// its spec has changed, or another manager drives it. Whatever was decided from the older one is dropped.
var errMoved = errors.New("the object changed while the action ran")

// publishEvery bounds how often progress is written, and how late a deletion is
// noticed during a long action.
const publishEvery = time.Second

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
