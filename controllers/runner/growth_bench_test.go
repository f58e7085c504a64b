package runner

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// crowd is how many objects there are; as many Deployments are others'.
const crowd = 10_000

// counted notes who is woken.
type counted struct {
	queue
	mu    sync.Mutex
	woken map[types.NamespacedName]int
}

func (c *counted) Add(r reconcile.Request) { c.AddAfter(r, 0) }
func (c *counted) AddAfter(r reconcile.Request, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woken[r.NamespacedName]++
}

// since are the wake-ups since the last call.
func (c *counted) since() (all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.woken {
		all += n
	}
	c.woken = map[types.NamespacedName]int{}
	return all
}

// BenchmarkCrowd is 10,000 objects of one namespace, three owned objects each and a group that one in ten names,
// beside 10,000 Deployments of others: what the caches take, and whom a change of the group wakes.
func BenchmarkCrowd(b *testing.B) {
	for b.Loop() {
		c := newCrowd(b)
		ctx, cancel := context.WithCancel(b.Context())
		before := heap()
		c.informers.follow(ctx, doorsAndGroups(b))
		c.await(ctx, b)
		b.ReportMetric(float64(heap()-before)/crowd, "cacheB/object")
		b.ReportMetric(float64(c.change(b, func(g *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(g.Object, "more", "status", "members")
		})), "woken/status")
		b.ReportMetric(float64(c.change(b, func(g *unstructured.Unstructured) { g.SetGeneration(2) })), "woken/spec")
		cancel()
		c.informers.wait()
	}
}

// TestCrowdIsNotWoken holds the wake-ups that BenchmarkCrowd counts.
func TestCrowdIsNotWoken(t *testing.T) {
	c := newCrowd(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer c.informers.wait()
	defer cancel()
	c.informers.follow(ctx, doorsAndGroups(t))
	c.await(ctx, t)
	for _, step := range []struct {
		why    string
		change func(*unstructured.Unstructured)
		want   int
	}{
		{"nobody reads the members of a group", func(g *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(g.Object, "more", "status", "members")
		}, 0},
		{"its phase is read by those that name it", func(g *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(g.Object, "Ready", "status", "phase")
		}, crowd / 10},
		{"a new spec is for those that name it, once for each", func(g *unstructured.Unstructured) { g.SetGeneration(2) }, crowd / 10},
	} {
		if got := c.change(t, step.change); got != step.want {
			t.Errorf("%d wake-ups, %d are wanted: %s", got, step.want, step.why)
		}
	}
}

type crowded struct {
	informers *informers
	queue     *counted
	metadata  *metadatafake.FakeMetadataClient
	dynamic   *dynamicfake.FakeDynamicClient
	group     *unstructured.Unstructured
	version   int
}

var groups = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "groups"}

func newCrowd(tb testing.TB) *crowded {
	tb.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		tb.Fatal(err)
	}
	c := &crowded{queue: &counted{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()), woken: map[types.NamespacedName]int{}}}
	c.group = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Group",
		"metadata": map[string]any{"namespace": "n", "name": "g", "resourceVersion": "1", "generation": int64(1)}, "status": map[string]any{"phase": "Pending"}}}
	c.metadata = metadatafake.NewSimpleMetadataClient(scheme)
	c.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{groups: "GroupList"}, c.group)
	add := func(resource, apiVersion, kind, name string, change func(*metav1.PartialObjectMetadata)) {
		m := object("n", name, change)
		m.APIVersion, m.Kind, m.UID, m.ResourceVersion = apiVersion, kind, types.UID(strings.Repeat("0", 30)+name), "1"
		gv, _ := schema.ParseGroupVersion(apiVersion)
		if err := c.metadata.Tracker().Create(gv.WithResource(resource), m, "n"); err != nil {
			tb.Fatal(err)
		}
	}
	annotated := func(bytes int) func(*metav1.PartialObjectMetadata) {
		return func(m *metav1.PartialObjectMetadata) {
			m.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", bytes)}
		}
	}
	add("groups", "example.org/v1", "Group", "g", annotated(0))
	for i := range crowd {
		name := fmt.Sprintf("s-%05d", i)
		add("doors", "example.org/v1", "Door", name, annotated(1200))
		add("deployments", "apps/v1", "Deployment", "others-"+name, annotated(4000))
		owned := func(m *metav1.PartialObjectMetadata) {
			annotated(300)(m)
			m.Labels = map[string]string{"made": name}
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Door", Name: name, Controller: ptr.To(true)}}
		}
		add("deployments", "apps/v1", "Deployment", name, owned)
		add("statefulsets", "apps/v1", "StatefulSet", name, owned)
		add("services", "v1", "Service", name, owned)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, version := range map[string]schema.GroupVersion{"Door": {Group: "example.org", Version: "v1"}, "Group": {Group: "example.org", Version: "v1"},
		"Deployment": {Group: "apps", Version: "v1"}, "StatefulSet": {Group: "apps", Version: "v1"}, "Service": {Version: "v1"}} {
		mapper.Add(version.WithKind(kind), meta.RESTScopeNamespace)
	}
	c.informers = &informers{waker: c.waker(mapper), queue: c.queue, stop: map[watched]context.CancelFunc{}, told: map[watched]string{}}
	return c
}

func doorsAndGroups(tb testing.TB) *fsm.Machine {
	tb.Helper()
	const owned = "{apiVersion: apps/v1, kind: Deployment, owned: true}, {apiVersion: apps/v1, kind: StatefulSet, owned: true}, {apiVersion: v1, kind: Service, owned: true}"
	return doors(tb, owned+", {apiVersion: example.org/v1, kind: Group}")
}

// await waits until all was listed, and forgets the wake-ups of that.
func (c *crowded) await(ctx context.Context, tb testing.TB) {
	tb.Helper()
	const listed = 4*crowd + crowd/10 // each itself, and for what it owns, and those that name the group
	err := harness.Await(ctx, "all to be listed", time.Minute, func(context.Context) error {
		c.queue.mu.Lock()
		defer c.queue.mu.Unlock()
		all := 0
		for _, n := range c.queue.woken {
			all += n
		}
		if all < listed {
			return fmt.Errorf("%d wake-ups of %d", all, listed)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	c.queue.since()
}

// change changes the group, and answers how many wake-ups that causes. A change of something else tells that it was seen.
func (c *crowded) change(tb testing.TB, change func(*unstructured.Unstructured)) int {
	tb.Helper()
	c.version++
	change(c.group)
	c.group.SetResourceVersion(fmt.Sprint(c.version + 1))
	if err := c.dynamic.Tracker().Update(groups, c.group.DeepCopy(), "n"); err != nil {
		tb.Fatal(err)
	}
	m := object("n", "g")
	m.APIVersion, m.Kind, m.ResourceVersion, m.Generation = "example.org/v1", "Group", c.group.GetResourceVersion(), c.group.GetGeneration()
	if err := c.metadata.Tracker().Update(groups, m, "n"); err != nil {
		tb.Fatal(err)
	}
	for range 200 { // the informer has its own goroutines: they come to rest
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	return c.queue.since()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// waker is that of a driver.
func (c *crowded) waker(mapper meta.RESTMapper) *waker {
	read := func(u *unstructured.Unstructured) string {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return phase
	}
	r := &references{read: map[schema.GroupKind]func(*unstructured.Unstructured) string{{Group: "example.org", Kind: "Group"}: read},
		by: map[reference]map[types.NamespacedName]bool{}, of: map[types.NamespacedName][]reference{}}
	for i := 0; i < crowd; i += 10 {
		r.put(types.NamespacedName{Namespace: "n", Name: fmt.Sprintf("s-%05d", i)}, []reference{{schema.GroupKind{Group: "example.org", Kind: "Group"}, types.NamespacedName{Namespace: "n", Name: "g"}}})
	}
	return &waker{client: c.metadata, mapper: mapper, references: r, whole: c.dynamic, selector: func(_ *fsm.Machine, w v1alpha1.Watch) string {
		if w.Owned {
			return "made"
		}
		return ""
	}}
}
