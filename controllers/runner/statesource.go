package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// byObject indexes states by the object that they name.
const byObject = "object"

// stateSource enqueues the states of a machine by their names: when one changes, and when
// its object is said to be gone.
type stateSource struct {
	client  metadata.Interface
	machine string
	gone    <-chan types.NamespacedName
	// turns wakes those that wait for their turn.
	turns *turns
	// seen says of most objects that they exist: only the states of the others are looked at.
	seen *seen

	informer cache.SharedIndexInformer
	ended    sync.WaitGroup
}

// Of states that hold nothing, those whose object is not seen are enqueued when the objects had time to be listed, and
// then at every sweep: they are only in the way.
const (
	sweepFirst = time.Minute
	sweepEvery = 30 * time.Minute
)

// Start does not block. It is called once; wait returns after ctx is done.
func (s *stateSource) Start(ctx context.Context, q queue) error {
	informer := metadatainformer.NewFilteredMetadataInformer(s.client, v1alpha1.GroupVersion.WithResource("machinestates"), "", 0,
		cache.Indexers{byObject: func(obj any) ([]string, error) {
			return []string{metadataOf(obj).GetAnnotations()[v1alpha1.ObjectAnnotation]}, nil
		}}, func(o *metav1.ListOptions) {
			o.LabelSelector = labels.SelectorFromSet(labels.Set{v1alpha1.MachineLabel: s.machine}).String()
		}).Informer()
	if err := informer.SetTransform(slimStates); err != nil {
		return err
	}
	s.informer = informer
	enqueue := func(obj any) {
		if m := metadataOf(obj); m != nil {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: m.Name}})
		}
	}
	s.turns.wakes(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) })
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if len(metadataOf(obj).GetFinalizers()) > 0 {
				enqueue(obj)
			}
		},
		DeleteFunc: enqueue,
		UpdateFunc: func(before, now any) { // whether something is held is all that matters
			if !slices.Equal(metadataOf(before).GetFinalizers(), metadataOf(now).GetFinalizers()) {
				enqueue(now)
			}
		},
	})
	if err != nil {
		return err
	}
	s.ended.Go(func() { informer.RunWithContext(ctx) })
	s.ended.Go(func() { s.serve(ctx, enqueue) })
	return nil
}

func (s *stateSource) serve(ctx context.Context, enqueue func(any)) {
	sweep := time.NewTimer(sweepFirst)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			sweep.Reset(sweepEvery)
			for _, obj := range s.informer.GetStore().List() {
				if !s.seen.has(metadataOf(obj)) {
					enqueue(obj)
				}
			}
		case key := <-s.gone:
			all, err := s.informer.GetIndexer().ByIndex(byObject, key.Namespace+"/"+key.Name)
			if err != nil {
				log.FromContext(ctx).Error(err, "the states of an object that is gone are looked at later", "object", key)
			}
			for _, obj := range all { // more than one where the object was created anew
				enqueue(obj)
			}
		}
	}
}

// alive tells whether the object of a state is known to exist, and whether the state holds something.
func (s *stateSource) alive(name string) (alive, held bool) {
	obj, found, err := s.informer.GetStore().GetByKey(name)
	if m := metadataOf(obj); err == nil && found && m != nil {
		return s.seen.has(m), len(m.Finalizers) > 0
	}
	return false, false
}

func (s *stateSource) wait() { s.ended.Wait() }
