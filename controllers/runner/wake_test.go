package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

func object(namespace, name string, change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.Namespace, m.Name = namespace, name
	for _, c := range change {
		c(m)
	}
	return m
}

func TestMatters(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1, 0))
	base := func(m *metav1.PartialObjectMetadata) {
		m.UID, m.Generation, m.ResourceVersion = "u", 1, "7"
		m.Annotations, m.Labels = map[string]string{"a": "1"}, map[string]string{"l": "1"}
	}
	cases := map[string]struct {
		why    string
		change func(*metav1.PartialObjectMetadata)
		want   bool
	}{
		"status":     {why: "only we write it: a pass for each would never end", change: func(m *metav1.PartialObjectMetadata) { m.ResourceVersion = "8" }},
		"spec":       {why: "what is wanted is different", change: func(m *metav1.PartialObjectMetadata) { m.Generation = 2 }, want: true},
		"annotation": {why: "requests are annotations", change: func(m *metav1.PartialObjectMetadata) { m.Annotations["a"] = "2" }, want: true},
		"label":      {why: "expressions may read them", change: func(m *metav1.PartialObjectMetadata) { m.Labels = nil }, want: true},
		"deletion":   {why: "it must begin at once", change: func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = &deleted }, want: true},
		"another object": {why: "deleted and created within a moment looks like an update",
			change: func(m *metav1.PartialObjectMetadata) { m.UID = "v" }, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := matters(object("", "o", base), object("", "o", base, c.change)); got != c.want {
				t.Errorf("got %t: %s", got, c.why)
			}
		})
	}
}

func TestWokenBy(t *testing.T) {
	kind := schema.GroupKind{Group: "example.org", Kind: "Door"}
	owned := func(apiVersion, kind string, controller bool) func(*metav1.PartialObjectMetadata) {
		return func(m *metav1.PartialObjectMetadata) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "a", Controller: ptr.To(controller)}}
		}
	}
	cases := map[string]struct {
		why        string
		namespaced bool
		watch      v1alpha1.Watch
		object     *metav1.PartialObjectMetadata
		want       []types.NamespacedName
	}{
		"by name, cluster-wide owners": {
			why: "it may be what any of them waits for", watch: v1alpha1.Watch{Name: "x"}, object: object("n1", "x"),
			want: []types.NamespacedName{{Name: "a"}, {Name: "b"}},
		},
		"by name, owners in namespaces": {
			why: "each looks into its own namespace", namespaced: true, watch: v1alpha1.Watch{Name: "x"}, object: object("n1", "x"),
			want: []types.NamespacedName{{Namespace: "n1", Name: "a"}},
		},
		"by name, cluster-wide object": {
			why: "all namespaces share it", namespaced: true, watch: v1alpha1.Watch{Name: "x"}, object: object("", "x"),
			want: []types.NamespacedName{{Namespace: "n1", Name: "a"}, {Namespace: "n2", Name: "b"}},
		},
		"owned": {
			why: "only its controller asked for it", namespaced: true, watch: v1alpha1.Watch{Owned: true},
			object: object("n2", "x", owned("example.org/v1", "Door", true)), want: []types.NamespacedName{{Namespace: "n2", Name: "a"}},
		},
		"owned, cluster-wide owner": {
			why: "the owner is in no namespace", watch: v1alpha1.Watch{Owned: true},
			object: object("n2", "x", owned("example.org/v1beta1", "Door", true)), want: []types.NamespacedName{{Name: "a"}},
		},
		"owned by another kind": {
			why: "the same name means nothing there", watch: v1alpha1.Watch{Owned: true}, object: object("", "x", owned("example.com/v1", "Door", true)),
		},
		"owned, not controlled": {
			why: "such a reference only is for the garbage collector", watch: v1alpha1.Watch{Owned: true}, object: object("", "x", owned("example.org/v1", "Door", false)),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			for i, name := range []string{"a", "b"} {
				o := object("", name)
				if c.namespaced {
					o.Namespace = []string{"n1", "n2"}[i]
				}
				if err := store.Add(o); err != nil {
					t.Fatal(err)
				}
			}
			got := (&owners{kind: kind, namespaced: c.namespaced, store: store}).wokenBy(c.watch, c.object)
			sorted := cmp.Transformer("set", func(keys []types.NamespacedName) map[types.NamespacedName]bool {
				set := map[types.NamespacedName]bool{}
				for _, k := range keys {
					set[k] = true
				}
				return set
			})
			if diff := cmp.Diff(c.want, got, sorted); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A deletion that the watch has missed is told of when all is listed again, in an envelope.
func TestDeletionsWakeAsOtherChangesDo(t *testing.T) {
	gone := object("n1", "x")
	for name, c := range map[string]struct {
		why  string
		told any
		want *metav1.PartialObjectMetadata
	}{
		"seen":              {"the object is the last that there was", gone, gone},
		"missed":            {"what it woke would wait for its poll, or for ever", cache.DeletedFinalStateUnknown{Key: "n1/x", Obj: gone}, gone},
		"missed, and empty": {"nobody knows whom it concerned", cache.DeletedFinalStateUnknown{Key: "n1/x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, metadataOf(c.told)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// doors is a machine that watches.
func doors(t testing.TB, watch string) *fsm.Machine {
	t.Helper()
	def, diags := fsm.Load("door.yaml", []byte("apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: door}\nspec:\n"+
		"  for: {apiVersion: example.org/v1, kind: Door}\n  initial: Open\n  watch: ["+watch+"]\n"+
		"  phases:\n  - {name: Open, terminal: success, onDelete: {immediate: true}}\n"))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	m, diags := fsm.Bind(def, fsm.Bindings{})
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

// A reload starts and stops informers of other objects, and leaves that of the
// machine's own kind alone. None holds more than is asked for.
func TestFollow(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Door"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, meta.RESTScopeNamespace)

	ctx, cancel := context.WithCancel(t.Context())
	w := &waker{client: client, mapper: mapper, namespace: "calico"}
	i := &informers{waker: w, stop: map[watched]context.CancelFunc{}, told: map[watched]string{}}
	defer w.wait()
	defer cancel()
	const (
		configMap = "{apiVersion: v1, kind: ConfigMap, name: settings}"
		jobs      = "{apiVersion: batch/v1, kind: Job, owned: true}"
		unserved  = "{apiVersion: example.com/v1, kind: Nowhere, name: x}"
	)
	for _, step := range []struct {
		why, watch string
		again      time.Duration
		want       []string
	}{
		{"the first file", configMap, 0, []string{"ConfigMap settings", "Door "}},
		{"one comes", configMap + ", " + jobs, 0, []string{"ConfigMap settings", "Door ", "Job "}},
		{"one goes", jobs, 0, []string{"Door ", "Job "}},
		{"one that is not served does not hold up the others", unserved + ", " + configMap, otherAgain, []string{"ConfigMap settings", "Door "}},
	} {
		if again := i.follow(ctx, doors(t, step.watch)); again != step.again {
			t.Errorf("%s: again after %s, want %s", step.why, again, step.again)
		}
		var got []string
		for w := range i.stop {
			got = append(got, w.Kind+" "+w.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
	}
	want := map[string]bool{`doors in "" where `: true, `configmaps in "calico" where metadata.name=settings`: true, `jobs in "calico" where `: true}
	harness.Eventually(t, "the informers to list", func() error {
		asked := map[string]bool{}
		for _, a := range client.Actions() {
			if list, ok := a.(clienttesting.ListAction); ok {
				asked[fmt.Sprintf("%s in %q where %s", a.GetResource().Resource, a.GetNamespace(), list.GetListRestrictions().Fields)] = true
			}
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// A kind that is simply not installed is looked for again for ever, and must not
// fill the log.
func TestFollowTellsOnceWhatCannotBeWatched(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	door := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Door"}
	bell := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bell"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(door, meta.RESTScopeRoot)
	var said []string
	logger := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logger))
	w := &waker{client: metadatafake.NewSimpleMetadataClient(scheme), mapper: mapper}
	i := &informers{waker: w, stop: map[watched]context.CancelFunc{}, told: map[watched]string{}}
	defer w.wait()
	defer cancel()
	watch := v1alpha1.Watch{APIVersion: "example.com/v1", Kind: "Bell", Name: "x"}
	machine := doors(t, "{apiVersion: example.com/v1, kind: Bell, name: x}")
	for _, step := range []struct {
		why    string
		before func()
		want   int
	}{
		{"it is news", func() {}, 1},
		{"nothing has changed", func() {}, 0},
		{"another reason is news", func() { i.told[watched{Watch: watch}] = "the API server does not answer" }, 1},
		{"it is watched now", func() { mapper.Add(bell, meta.RESTScopeRoot) }, 0},
	} {
		said = nil
		step.before()
		i.follow(ctx, machine)
		if len(said) != step.want {
			t.Errorf("%s: it said %q, want %d lines", step.why, said, step.want)
		}
	}
	if len(i.told) > 0 {
		t.Errorf("what is watched is still remembered as missing: %v", i.told)
	}
}
