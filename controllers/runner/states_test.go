package runner

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
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
	if err := objects.SetTransform(stripOwn); err != nil {
		t.Fatal(err)
	}
	go objects.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), objects.HasSynced) {
		t.Fatal("the objects are not listed")
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("MachineState"), meta.RESTScopeRoot)
	source := &stateSource{client: client, machine: "door", mapper: mapper}
	source.follow(objects)
	q := &counted{woken: map[types.NamespacedName]int{}}
	must(t, source.Start(t.Context(), q))
	anew := types.NamespacedName{Namespace: "n", Name: "anew"}
	harness.Eventually(t, "the states to be listed", func() error {
		if len(source.of(types.NamespacedName{Namespace: "n", Name: "gone"})) == 0 || len(source.of(anew)) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	q.awaitWoken(t, 1)
	if q.woken[anew] == 0 {
		t.Errorf("woken: %v, want what %s left that had its name before", q.woken, anew)
	}
	source.follow(nil)
	for _, obj := range source.states.GetStore().List() {
		if source.alive(metadataOf(obj)) {
			t.Error("nobody watches the objects any more")
		}
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
