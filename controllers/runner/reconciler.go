package runner

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/fsm"
)

const (
	// maxRuns bounds the runs of a pass, so that an object whose phases follow each other without end leaves
	// the worker to others, and an edit of the machine file is seen.
	maxRuns = 32
	// unfitAgain is how soon an object that cannot be driven is looked at again.
	unfitAgain = 5 * time.Second
	// shapeAgain is how soon an object is looked at again whose CRD was not read yet.
	shapeAgain = 100 * time.Millisecond
)

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

// errMoved says that an action is not the one any more that the object needs: it is being deleted,
// its spec has changed, or another manager drives it. Whatever was decided from the older one is dropped.
var errMoved = errors.New("the object changed while the action ran")

// publishEvery bounds how often progress is written, and how late a deletion is
// noticed during a long action.
const publishEvery = time.Second

// finalizerLocked is the one that keeps this object: that of the machine when the object was begun, by whatever name another
// revision has for it.
func (p *pass[T]) finalizerLocked() string {
	if p.state != nil && p.state.Status.Finalizer != "" {
		return p.state.Status.Finalizer
	}
	return p.machine.Finalizer()
}

// about is what Events of this pass are about.
func (p *pass[T]) about() runtime.Object {
	if p.gone {
		return p.state
	}
	return p.stored
}

// adoptMetadataLocked takes over what the server answered; the status of work stays.
func (p *pass[T]) adoptMetadataLocked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work.SetResourceVersion(p.stored.GetResourceVersion())
	p.work.SetAnnotations(p.stored.GetAnnotations())
	p.work.SetLabels(p.stored.GetLabels())
	p.work.SetFinalizers(p.stored.GetFinalizers())
	p.adoptFields()
}
