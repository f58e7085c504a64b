package runner

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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

const (
	// sweepFirst and sweepEvery are when the states are looked through for those that hold nothing and whose object is not
	// known to exist: first when the objects had time to be listed. They are only in the way.
	sweepFirst = time.Minute
	sweepEvery = 30 * time.Minute
	// statesAgain is how soon a CRD of MachineState that is not served is looked for again.
	statesAgain = 5 * time.Second
)

// stateSource wakes what states say they are of, where the object is not known to exist: it has gone, and something is left.
type stateSource struct {
	client  metadata.Interface
	mapper  meta.RESTMapper
	machine string
	// gone is told of a state that is not there any more.
	gone func(state string)

	mu sync.Mutex
	// states are all of the machine, objects those that are watched; each nil while nobody knows.
	states  cache.SharedIndexInformer
	objects cache.SharedIndexInformer
	ended   sync.WaitGroup
}

// Start does not block. It is called once; wait returns after ctx is done.
func (s *stateSource) Start(ctx context.Context, q queue) error {
	s.ended.Go(func() { s.serve(ctx, q) })
	return nil
}

func (s *stateSource) serve(ctx context.Context, q queue) {
	kind := v1alpha1.GroupVersion.WithKind("MachineState")
	for {
		_, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			break
		}
		log.FromContext(ctx).V(1).Info("states cannot be watched yet", "error", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(statesAgain):
		}
	}
	if err := s.watch(ctx, q); err != nil {
		log.FromContext(ctx).Error(err, "states are not watched: what objects have left is released when they are created anew")
		return
	}
	sweep := time.NewTimer(sweepFirst)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			sweep.Reset(sweepEvery)
			for _, obj := range s.states.GetStore().List() {
				s.wake(q, obj)
			}
		}
	}
}

func (s *stateSource) watch(ctx context.Context, q queue) error {
	informer := metadatainformer.NewFilteredMetadataInformer(s.client, v1alpha1.GroupVersion.WithResource("machinestates"), "", 0,
		cache.Indexers{byObject: func(obj any) ([]string, error) {
			return []string{metadataOf(obj).GetAnnotations()[v1alpha1.ObjectAnnotation]}, nil
		}}, func(o *metav1.ListOptions) {
			o.LabelSelector = labels.SelectorFromSet(labels.Set{v1alpha1.MachineLabel: s.machine}).String()
		}).Informer()
	if err := informer.SetTransform(stripState); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if holds(obj) {
				s.wake(q, obj)
			}
		},
		UpdateFunc: func(before, now any) {
			if holds(before) != holds(now) {
				s.wake(q, now)
			}
		},
		DeleteFunc: func(obj any) {
			if state := metadataOf(obj); state != nil {
				s.gone(state.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.states = informer
	s.mu.Unlock()
	s.ended.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

func holds(state any) bool { return len(metadataOf(state).GetFinalizers()) > 0 }

// wake has the object of a state looked at, unless it is known to exist: then its own events wake it.
func (s *stateSource) wake(q queue, obj any) {
	if state := metadataOf(obj); state != nil && !s.alive(state) {
		namespace, name, _ := strings.Cut(state.GetAnnotations()[v1alpha1.ObjectAnnotation], "/")
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}

// of are the names of the states that say they are of an object of this name: more than one where it was created anew.
func (s *stateSource) of(key types.NamespacedName) (names []string) {
	s.mu.Lock()
	states := s.states
	s.mu.Unlock()
	if states == nil {
		return nil
	}
	all, err := states.GetIndexer().ByIndex(byObject, key.Namespace+"/"+key.Name)
	if err != nil { // there is such an index
		return nil
	}
	for _, obj := range all {
		names = append(names, metadataOf(obj).GetName())
	}
	return names
}

// follow says where the objects are known.
func (s *stateSource) follow(objects cache.SharedIndexInformer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = objects
}

// alive is true where the object of a state is known to exist. One that has gone a moment ago may still do so: it is
// heard of then.
func (s *stateSource) alive(state *metav1.PartialObjectMetadata) bool {
	s.mu.Lock()
	objects := s.objects
	s.mu.Unlock()
	if objects == nil || !objects.HasSynced() {
		return false
	}
	namespace, name, _ := strings.Cut(state.GetAnnotations()[v1alpha1.ObjectAnnotation], "/")
	obj, found, err := objects.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	m := metadataOf(obj)
	return err == nil && found && m != nil && state.Name == v1alpha1.MachineStateName(s.machine, m.UID)
}

func (s *stateSource) wait() { s.ended.Wait() }
