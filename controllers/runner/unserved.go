package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/controllers/runner/crdgate"
)

// toldAgain is how often objects are looked for that have come meanwhile. An Event is one, however often it is told.
const toldAgain = 10 * time.Second

// tellUnserved puts a Warning on the objects of a CRD that does not serve the version of the machine, until ctx is done:
// nothing else about them would say why nothing happens.
func (d *Driver[T]) tellUnserved(ctx context.Context, missing crdgate.Missing) error {
	if missing.Resource.Version == "" { // nobody can see an object
		<-ctx.Done()
		return nil
	}
	objects, err := metadata.NewForConfig(d.Config)
	if err != nil {
		return fmt.Errorf("make the metadata client of %s: %w", d.Name, err)
	}
	own, err := cluster.New(d.Config)
	if err != nil {
		return fmt.Errorf("make what sends the Events of %s: %w", d.Name, err)
	}
	recorder, ended := own.GetEventRecorder(d.Name), make(chan error, 1)
	go func() { ended <- own.Start(ctx) }()
	for {
		if err := tellAll(ctx, objects, recorder, missing); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "objects that are not driven get no Event", "crd", missing.CRD)
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(toldAgain):
		}
	}
}

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
