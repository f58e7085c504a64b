package runner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// The states of objects that the informer has cost no request, however many there are. Whoever takes the lead looks at
// those that hold something alone.
func TestStatesOfLivingObjectsAreNotRead(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme)
	kinds := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "doors"}
	add := func(resource schema.GroupVersionResource, kind string, m *metav1.PartialObjectMetadata) {
		m.APIVersion, m.Kind, m.ResourceVersion = resource.GroupVersion().String(), kind, "1"
		if err := client.Tracker().Create(resource, m, m.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	state := func(name, uid string, finalizers ...string) {
		m := object("", v1alpha1.MachineStateName("door", types.UID(uid)))
		m.Labels = map[string]string{v1alpha1.MachineLabel: "door"}
		m.Annotations = map[string]string{v1alpha1.ObjectAnnotation: "n/" + name}
		m.Finalizers = finalizers
		add(v1alpha1.GroupVersion.WithResource("machinestates"), "MachineState", m)
	}
	for _, name := range []string{"idle", "held", "anew"} {
		add(kinds, "Door", object("n", name, func(m *metav1.PartialObjectMetadata) { m.UID = types.UID("u-" + name) }))
	}
	state("idle", "u-idle")
	state("held", "u-held", v1alpha1.HeldFinalizer)
	state("anew", "u-before", v1alpha1.HeldFinalizer)
	state("gone", "u-gone")

	objects := metadatainformer.NewFilteredMetadataInformer(client, kinds, "", 0, cache.Indexers{}, nil).Informer()
	if err := objects.SetTransform(slimOwn); err != nil {
		t.Fatal(err)
	}
	go objects.RunWithContext(t.Context())
	known := &seen{}
	known.follow(objects)
	source := &stateSource{client: client, machine: "door", gone: make(chan types.NamespacedName), seen: known}
	q := &counted{woken: map[types.NamespacedName]int{}}
	must(t, source.Start(t.Context(), q))
	harness.Eventually(t, "all to be listed", func() error {
		if !objects.HasSynced() || len(source.informer.GetStore().ListKeys()) < 4 || !source.informer.HasSynced() {
			return errors.New("not yet")
		}
		return nil
	})
	q.awaitWoken(t, 2) // only now: nothing that is still to be listed wakes more
	source.assertLooks(t)
	known.forget()
	if alive, _ := source.alive(v1alpha1.MachineStateName("door", "u-idle")); alive {
		t.Error("nobody watches the objects any more")
	}
}

// awaitWoken waits until so many objects were woken, and no more.
func (c *counted) awaitWoken(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, "what holds something to be looked at", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.woken) != want {
			return fmt.Errorf("woken: %v", c.woken)
		}
		return nil
	})
}

// assertLooks: the states of objects that are there cost no request, and come again only if they hold something.
func (s *stateSource) assertLooks(t *testing.T) {
	t.Helper()
	for uid, want := range map[string]struct {
		again time.Duration
		asked bool
	}{
		"u-idle": {}, "u-held": {again: heldAgain}, "u-before": {asked: true}, "u-gone": {asked: true},
	} {
		machine := doors(t, "")
		r := &Reconciler[*migrationv1.DatastoreMigration]{Client: answering{err: errors.New("it is asked")}, Machine: func() *fsm.Machine { return machine }, Alive: s.alive}
		result, err := r.passState(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: v1alpha1.MachineStateName("door", types.UID(uid))}})
		if asked := err != nil && strings.Contains(err.Error(), "it is asked"); asked != want.asked || result.RequeueAfter != want.again {
			t.Errorf("%s: asked %t, again after %s (%v), want %+v", uid, asked, result.RequeueAfter, err, want)
		}
	}
}
