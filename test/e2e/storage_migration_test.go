package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	widgetsCRD = "widgets.example.com"
	widgetsIn  = "warehouse"
	// settles is the wait at the beginning of the machine.
	settles = 5 * time.Second
)

// docs/extend/storage-migration.md: when a migration says so, etcd has every object in the new version, and the CRD says it.
// Whatever is killed or deleted in the middle, no object is lost, and none has a version that the CRD does not name.
// STORAGE_SIZE=10000 and STORAGE_ROUNDS=20 are the long form.
func TestStorageMigration(t *testing.T) {
	w := pristine(t)
	w.apply(t, "storage-migration/crd.yaml")
	w.alsoGrant(t, "storage-migration/rbac.yaml")
	w.kubectl(t, "create", "namespace", widgetsIn)
	t.Cleanup(func() {
		w.kubectl(t, "delete", "--wait=false", "namespace/"+widgetsIn, "crd/storagemigrations.example.com", "crd/"+widgetsCRD)
	})
	size := fromEnv("STORAGE_SIZE", 300)
	w.makeWidgets(t, size)
	args := []string{"--phases-dir", directory(t, "storage-migration/storage-migration.yaml")}
	manager := w.manager(t, args...)

	inTurn(t, "paused", func(t *testing.T) {
		w.storeAs(t, "v2")
		w.migrate(t, map[string]any{"paused": true})
		w.kubectl(t, "wait", "--for=jsonpath={.status.phase}=BetweenPages", "--timeout=2m", "storagemigration/widgets")
		if got := w.storedWidgets(t); got["v2"] != 200 {
			t.Errorf("stored are %v, want the first page as v2", got)
		}
		w.kubectl(t, "patch", "storagemigration/widgets", "--type=merge", "-p", `{"spec":{"paused":false}}`)
		w.awaitMigrated(t)
		w.assertStored(t, "v2", size)
		w.kubectl(t, "delete", "--timeout=40s", "storagemigration/widgets")
	})
	inTurn(t, "changed in the middle", func(t *testing.T) {
		w.storeAs(t, "v1")
		w.migrate(t, map[string]any{"paused": true})
		w.kubectl(t, "wait", "--for=jsonpath={.status.phase}=BetweenPages", "--timeout=2m", "storagemigration/widgets")
		w.storeAs(t, "v2")
		w.kubectl(t, "patch", "storagemigration/widgets", "--type=merge", "-p", `{"spec":{"paused":false}}`)
		w.awaitMigrated(t)
		w.assertStored(t, "v2", size)
		w.kubectl(t, "delete", "--timeout=40s", "storagemigration/widgets")
	})
	version := "v2"
	begin := func(string) {
		version = map[string]string{"v1": "v2", "v2": "v1"}[version]
		w.storeAs(t, version)
		w.migrate(t, nil)
	}
	manager = w.disturb(t, fromEnv("STORAGE_ROUNDS", 1), manager, disturbed{
		object: []string{"storagemigration/widgets"},
		within: settles + 4*time.Second,
		begin:  begin,
		killed: func(string) {
			w.awaitMigrated(t)
			w.assertStored(t, version, size)
		},
		deleted: func(label string) {
			w.assertNoStates(t, "StorageMigration")
			stored, named := w.storedWidgets(t), w.storedVersions(t)
			for v := range stored {
				if !slices.Contains(named, v) {
					t.Errorf("%s: stored are %v, and the CRD names %v alone", label, stored, named)
				}
			}
			if stored["v1"]+stored["v2"] != size {
				t.Errorf("%s: stored are %v, want %d", label, stored, size)
			}
		},
	}, args...)
	manager.Kill()
	inTurn(t, "measured", func(t *testing.T) {
		w.measureMigration(t, version, size, args)
		w.assertNoStates(t, "StorageMigration") // its manager ends with it
	})
}

// measureMigration compares the machine with a client that only patches.
func (w *world) measureMigration(t *testing.T, version string, size int, args []string) {
	t.Helper()
	other := map[string]string{"v1": "v2", "v2": "v1"}[version]
	w.storeAs(t, other)
	w.migrate(t, nil)
	plain := w.manager(t, args...)
	w.awaitMigrated(t) // whatever a deletion in the middle has left
	w.kubectl(t, "delete", "--timeout=40s", "storagemigration/widgets")
	plain.Kill()

	took := map[int]time.Duration{}
	for _, workers := range []int{1, 20} {
		version, other = other, version
		w.storeAs(t, version)
		time.Sleep(time.Second)
		began := time.Now()
		w.patchAll(t, workers)
		took[workers] = time.Since(began)
		w.assertAllStored(t, version, size)
		w.prune(t, version)
	}
	w.storeAs(t, other)
	manager := w.managerMeasured(t, args...)
	before := manager.scrape(t)
	began := time.Now()
	w.migrate(t, nil)
	w.awaitMigrated(t)
	machine := time.Since(began) - settles
	after := manager.scrape(t)
	each := func(methods ...string) (n float64) {
		for _, method := range methods {
			n += after.Sum("rest_client_requests_total", "method", method) - before.Sum("rest_client_requests_total", "method", method)
		}
		return n / float64(size)
	}
	w.assertStored(t, other, size)
	t.Logf("%d objects in %s, %.2f writes and %.2f reads an object; patches alone by 1 client in %s (ratio %.2f), by 20 in %s (ratio %.2f)",
		size, machine.Round(100*time.Millisecond), each("POST", "PUT", "PATCH", "DELETE"), each("GET"),
		took[1].Round(100*time.Millisecond), machine.Seconds()/took[1].Seconds(), took[20].Round(100*time.Millisecond), machine.Seconds()/took[20].Seconds())
	w.kubectl(t, "delete", "--timeout=40s", "storagemigration/widgets")
}

// makeWidgets makes a kind with two versions, and objects of it that are stored in the first.
func (w *world) makeWidgets(t *testing.T, size int) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: widgetsCRD}}
	crd.Spec.Group, crd.Spec.Scope = "example.com", apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	preserve := true
	for _, version := range []string{"v1", "v2"} {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true, Storage: version == "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}}})
	}
	w.do(t, w.Client.Create(t.Context(), crd))
	w.awaitEstablished(t, "crd/"+widgetsCRD)
	w.forEach(t, 20, size, func(ctx context.Context, i int) error {
		return w.Client.Create(ctx, widget(i))
	})
}

func widget(i int) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(i)}}}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("Widget")
	obj.SetNamespace(widgetsIn)
	obj.SetName(fmt.Sprintf("widget-%05d", i))
	return obj
}

// forEach calls a function for the numbers below size, by so many at a time.
func (w *world) forEach(t *testing.T, workers, size int, do func(ctx context.Context, i int) error) {
	t.Helper()
	errs, wg := make([]error, workers), sync.WaitGroup{}
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < size && errs[worker] == nil; i += workers {
				errs[worker] = do(t.Context(), i)
			}
		})
	}
	wg.Wait()
	w.do(t, errors.Join(errs...))
}

// patchAll is what a script does: it lists in pages, and sends an empty patch for each object.
func (w *world) patchAll(t *testing.T, workers int) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.com/v1")
	list.SetKind("WidgetList")
	for page := ""; ; page = list.GetContinue() {
		w.do(t, w.Client.List(t.Context(), list, client.Limit(200), client.Continue(page)))
		w.forEach(t, workers, len(list.Items), func(ctx context.Context, i int) error {
			return w.Client.Patch(ctx, &list.Items[i], client.RawPatch(types.MergePatchType, []byte("{}")))
		})
		if list.GetContinue() == "" {
			return
		}
	}
}

// storeAs makes a version the one in which objects are stored.
func (w *world) storeAs(t *testing.T, version string) {
	t.Helper()
	crd := w.widgets(t)
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == version
	}
	w.do(t, w.Client.Patch(t.Context(), crd, client.MergeFrom(before)))
}

func (w *world) widgets(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Name: widgetsCRD}, crd))
	return crd
}

func (w *world) storedVersions(t *testing.T) []string {
	t.Helper()
	return w.widgets(t).Status.StoredVersions
}

// prune is what a person does after patchAll.
func (w *world) prune(t *testing.T, version string) {
	t.Helper()
	crd := w.widgets(t)
	crd.Status.StoredVersions = []string{version}
	w.do(t, w.Client.Status().Update(t.Context(), crd))
}

func (w *world) migrate(t *testing.T, spec map[string]any) {
	t.Helper()
	all := map[string]any{"crd": widgetsCRD}
	maps.Copy(all, spec)
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": all}}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("StorageMigration")
	obj.SetName("widgets")
	w.do(t, w.Client.Create(t.Context(), obj))
}

func (w *world) awaitMigrated(t *testing.T) {
	t.Helper()
	w.do(t, harness.Await(t.Context(), "the objects to be rewritten", 20*time.Minute, func(ctx context.Context) error {
		obj := &unstructured.Unstructured{}
		obj.SetAPIVersion("example.com/v1")
		obj.SetKind("StorageMigration")
		if err := w.Client.Get(ctx, client.ObjectKey{Name: "widgets"}, obj); err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return nilUnless(phase == "Migrated", asJSON(t, obj.Object["status"]))
	}))
}

// assertStored: all objects are stored in a version, and the CRD says so.
func (w *world) assertStored(t *testing.T, version string, size int) {
	t.Helper()
	w.assertAllStored(t, version, size)
	if diff := cmp.Diff([]string{version}, w.storedVersions(t)); diff != "" {
		t.Errorf("storedVersions (-want +got):\n%s", diff)
	}
}

func (w *world) assertAllStored(t *testing.T, version string, size int) {
	t.Helper()
	if diff := cmp.Diff(map[string]int{version: size}, w.storedWidgets(t)); diff != "" {
		t.Errorf("objects by the version that etcd has (-want +got):\n%s", diff)
	}
}

// storedWidgets counts, in etcd, the objects of each version.
func (w *world) storedWidgets(t *testing.T) map[string]int {
	t.Helper()
	_, url := w.etcdOf(t)
	counts := map[string]int{}
	const prefix = "/registry/example.com/widgets/"
	from, end := prefix, strings.TrimSuffix(prefix, "/")+"0"
	for {
		page, err := askEtcd(url+"/v3/kv/range", map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(from)), "range_end": base64.StdEncoding.EncodeToString([]byte(end)), "limit": 1000})
		w.do(t, err)
		for _, kv := range page.KVs {
			var obj metav1.TypeMeta
			w.do(t, json.Unmarshal(kv.Value, &obj))
			counts[strings.TrimPrefix(obj.APIVersion, "example.com/")]++
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return counts
		}
	}
}
