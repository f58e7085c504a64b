package runner

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/controllers/runner/crdgate"
)

// toldAgain is how often objects are looked for that have come meanwhile. An Event is one, however often it is told.
const toldAgain = 10 * time.Second

// unservedSource puts a Warning on the objects of a CRD that does not serve the version of the machine: nothing else about
// them would say why nothing happens.
type unservedSource struct {
	client   metadata.Interface
	recorder events.EventRecorder
	missing  *crdgate.Missing
	ended    sync.WaitGroup
}

// Start does not block. It is called once; wait returns after ctx is done.
func (u *unservedSource) Start(ctx context.Context, _ queue) error {
	if u.missing.Resource.Version == "" { // nobody can see an object
		return nil
	}
	u.ended.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := tellAll(ctx, u.client, u.recorder, *u.missing); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "objects that are not driven get no Event", "crd", u.missing.CRD)
			}
		}, toldAgain)
	})
	return nil
}

func (u *unservedSource) wait() { u.ended.Wait() }

func tellAll(ctx context.Context, objects metadata.Interface, recorder events.EventRecorder, missing crdgate.Missing) error {
	all, err := objects.Resource(missing.Resource).List(ctx, metav1.ListOptions{Limit: toldMost})
	if err != nil {
		return err
	}
	for i := range all.Items {
		object := &all.Items[i]
		object.SetGroupVersionKind(missing.Resource.GroupVersion().WithKind(missing.Kind)) // a list has none
		tell(recorder, object, corev1.EventTypeWarning, "VersionNotServed", "Wait", missing.Error())
	}
	return nil
}
