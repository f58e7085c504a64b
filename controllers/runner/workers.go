package runner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// DefaultWorkers are several, since a long step must not keep other objects from being answered.
	DefaultWorkers = 4
	// DefaultExternalCalls costs a goroutine and a connection each.
	DefaultExternalCalls = 16
	// deletionsFirst is the priority of an object that is being deleted; that of all others is 0.
	deletionsFirst = 10
)

// Limits are how much a controller does at a time.
type Limits struct {
	// Workers is how many objects are worked on; 0 means DefaultWorkers.
	Workers int
	// ExternalCalls is how many actions may call outwards (fsm.ActionSpec.External). They have workers of their
	// own, so that hosts that do not answer keep no other object waiting. 0: such calls are not bounded, since
	// there are none.
	ExternalCalls int
}

// workers is how many goroutines reconcile: Workers of them are never in a call outwards.
func (l Limits) workers() int {
	if l.Workers == 0 {
		l.Workers = DefaultWorkers
	}
	return l.Workers + l.ExternalCalls
}

func (l Limits) semaphore() *semaphore {
	if l.ExternalCalls == 0 {
		return nil
	}
	return newSemaphore(l.ExternalCalls)
}

// enqueue adds an object that has changed. One that is being deleted comes before all that wait for a worker, and
// stays there from pass to pass.
func enqueue(q queue, m *metav1.PartialObjectMetadata) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}}
	if ordered, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok && !m.DeletionTimestamp.IsZero() {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(deletionsFirst)}, request)
		return
	}
	q.Add(request)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// metadataOf is nil for what is not an object.
func metadataOf(obj any) *metav1.PartialObjectMetadata {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	m, _ := obj.(*metav1.PartialObjectMetadata)
	return m
}
