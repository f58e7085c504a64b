package runner

import (
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// seen is what the controller of the objects knows of which there are, for that of the states, which has no need to
// ask the API server then. The zero value knows nothing; so does nil.
type seen struct {
	informer atomic.Pointer[cache.SharedIndexInformer]
}

func (s *seen) follow(informer cache.SharedIndexInformer) {
	if s != nil {
		s.informer.Store(&informer)
	}
}

// forget is for an informer that has ended.
func (s *seen) forget() {
	if s != nil {
		s.informer.Store(nil)
	}
}

// has is true where the object of a state is known to exist. One that has gone a moment ago may still do so: it is
// heard of then.
func (s *seen) has(state *metav1.PartialObjectMetadata) bool {
	if s == nil {
		return false
	}
	informer := s.informer.Load()
	if informer == nil || !(*informer).HasSynced() {
		return false
	}
	namespace, name, _ := cache.SplitMetaNamespaceKey(state.GetAnnotations()[v1alpha1.ObjectAnnotation])
	obj, found, err := (*informer).GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	m := metadataOf(obj)
	return err == nil && found && m != nil && strings.HasSuffix(state.Name, v1alpha1.MachineStateName("", m.UID)) // of this machine are all
}
