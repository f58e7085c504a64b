package runner

import (
	"context"
	"errors"
	"sync"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// errNoShape says that the CRD of the kind has not been read yet.
var errNoShape = errors.New("the CRD has not been read yet")

// shapes follows the CRD of a kind: somebody may apply another one at any time.
type shapes struct {
	version string
	// changed holds a token after each change.
	changed chan struct{}

	mu    sync.Mutex
	shape *Shape
	err   error
}

func newShapes(version string) *shapes {
	return &shapes{version: version, changed: make(chan struct{}, 1), err: errNoShape}
}

// get answers what the CRD keeps, or why objects of the kind cannot be driven.
func (s *shapes) get() (*Shape, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shape, s.err
}

func (s *shapes) set(obj any) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	shape, err := ShapeOf(crd, s.version)
	if err != nil {
		err = unfitError{err}
	}
	s.mu.Lock()
	s.shape, s.err = shape, err
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// follow reads the CRD, and again whenever it changes, until ctx is done.
func (s *shapes) follow(ctx context.Context, crds clientset.Interface, name string, logger logr.Logger) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(crds.ApiextensionsV1().RESTClient(), "customresourcedefinitions", "",
			fields.OneTermEqualSelector(metav1.ObjectNameField, name)),
		ObjectType: &apiextensionsv1.CustomResourceDefinition{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: s.set, UpdateFunc: func(before, now any) {
			if generationOf(before) != generationOf(now) {
				s.set(now)
			}
		}},
		Logger: &logger,
	})
	informer.RunWithContext(ctx)
}

func generationOf(obj any) int64 {
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		return crd.Generation
	}
	return 0
}
