package runner

import (
	"context"
	"slices"
	"sync"

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

	ended sync.WaitGroup
}

// Start does not block. It is called once; wait returns after ctx is done.
func (s *stateSource) Start(ctx context.Context, q queue) error {
	informer := metadatainformer.NewFilteredMetadataInformer(s.client, v1alpha1.GroupVersion.WithResource("machinestates"), "", 0,
		cache.Indexers{byObject: func(obj any) ([]string, error) {
			return []string{metadataOf(obj).GetAnnotations()[v1alpha1.ObjectAnnotation]}, nil
		}}, func(o *metav1.ListOptions) {
			o.LabelSelector = labels.SelectorFromSet(labels.Set{v1alpha1.MachineLabel: s.machine}).String()
		}).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return err
	}
	enqueue := func(obj any) {
		if m := metadataOf(obj); m != nil {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: m.Name}})
		}
	}
	s.turns.wakes(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) })
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, DeleteFunc: enqueue,
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
	s.ended.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case key := <-s.gone:
				all, err := informer.GetIndexer().ByIndex(byObject, key.Namespace+"/"+key.Name)
				if err != nil {
					log.FromContext(ctx).Error(err, "the states of an object that is gone are looked at later", "object", key)
				}
				for _, obj := range all { // more than one where the object was created anew
					enqueue(obj)
				}
			}
		}
	})
	return nil
}

func (s *stateSource) wait() { s.ended.Wait() }
