package waiting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// objectsEnv is how many objects there are, quietEnv how long they are watched.
	objectsEnv, quietEnv = "WAITING_OBJECTS", "WAITING_QUIET"

	patience = 20 * time.Minute
	creators = 16
)

// machine waits for a ConfigMap that never comes; every tenth object fails instead, and has a backoff of an hour.
const machine = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: waiter}
spec:
  for: {apiVersion: example.org/v1, kind: Waiter}
  initial: Waiting
  phases:
  - name: Waiting
    retry: {base: 1h, max: 1h, attempts: 3, to: Failed}
    steps:
    - {name: Fail, if: self.spec.fails, action: ReadObject, with: {apiVersion: example.org/v1, kind: Nowhere, name: x}}
    - {name: Wait, action: ReadObject, with: {apiVersion: v1, kind: ConfigMap, name: never}, until: result.found, poll: 10s}
    next: [{to: Done}]
    timeout: {after: 24h, to: Failed}
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
  - {name: Failed, terminal: failure, onDelete: {immediate: true}}
`

func number(t *testing.T, env string, otherwise int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

func waiters() *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.APIVersion, crd.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
	crd.Name = "waiters.example.org"
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "waiters", Singular: "waiter", Kind: "Waiter", ListKind: "WaiterList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything}}}}}}
	return crd
}

// crowd is a cluster with many objects, and a manager that drives them.
type crowd struct {
	*harness.Cluster
	t       *testing.T
	n       int
	manager *harness.Process
	metrics string
}

func newCrowd(t *testing.T, n int) *crowd {
	t.Helper()
	ctx := t.Context()
	cluster, err := harness.Start(ctx, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"},
		Types: []func(*runtime.Scheme) error{v1alpha1.AddToScheme}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &crowd{Cluster: cluster, t: t, n: n}
	all, err := crds.ReadDir(filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds"))
	if err != nil {
		t.Fatal(err)
	}
	waiter, err := runtime.DefaultUnstructuredConverter.ToUnstructured(waiters())
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(ctx, cluster.Config, crds.Set{CRDs: append(all, &unstructured.Unstructured{Object: waiter})}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{}
	namespace.Name = "crowd"
	if err := cluster.Client.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	c.start()
	return c
}

func (c *crowd) start() {
	c.t.Helper()
	dir := c.t.TempDir()
	path, err := harness.Binary("manager")
	address, noPort := harness.FreeAddress()
	if err := errors.Join(err, noPort, os.WriteFile(filepath.Join(dir, "waiter.yaml"), []byte(machine), 0o600)); err != nil {
		c.t.Fatal(err)
	}
	c.metrics = "http://" + address
	c.manager, err = harness.StartProcess(harness.Program{Name: "manager", Path: path, LogDir: c.LogDir, Args: []string{
		"--kubeconfig", c.Kubeconfig, "--controllers", "custom", "--phases-dir", dir, "--metrics-bind-address", address, "--metrics-secure=false"}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := c.manager.Stop(time.Minute); err != nil {
			c.t.Error(err)
		}
	})
}

// each does something with the first objects, some at once.
func (c *crowd) each(n int, do func(ctx context.Context, obj *unstructured.Unstructured) error) {
	c.t.Helper()
	group, ctx := errgroup.WithContext(c.t.Context())
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fails": i%10 == 0}}}
			obj.SetAPIVersion("example.org/v1")
			obj.SetKind("Waiter")
			obj.SetNamespace("crowd")
			obj.SetName(fmt.Sprintf("waiter-%d", i))
			return do(ctx, obj)
		})
	}
	if err := group.Wait(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.manager.Tail(20))
	}
}

// versions are those of all objects, and of their states; attempts counts the errors of all.
func (c *crowd) versions() (objects, states map[string]string, attempts, waiting int) {
	c.t.Helper()
	objects, states = map[string]string{}, map[string]string{}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.org/v1")
	list.SetKind("WaiterList")
	all := &v1alpha1.MachineStateList{}
	if err := errors.Join(c.Client.List(c.t.Context(), list), c.Client.List(c.t.Context(), all)); err != nil {
		c.t.Fatal(err)
	}
	for _, obj := range list.Items {
		objects[obj.GetName()] = obj.GetResourceVersion()
	}
	for _, state := range all.Items {
		states[state.Spec.Object.Name] = state.ResourceVersion
		attempts += int(state.Status.Attempts)
		if state.Status.Phase == "Waiting" && state.Status.Step != "" {
			waiting++
		}
	}
	return objects, states, attempts, waiting
}

// usage is what the manager has used so far.
type usage struct{ cpu, passes, writes, resident float64 }

func (c *crowd) usage() usage {
	c.t.Helper()
	shown, err := harness.Scrape(c.t.Context(), http.DefaultClient, c.metrics)
	if err != nil {
		c.t.Fatal(err)
	}
	u := usage{cpu: shown.Sum("process_cpu_seconds_total"), resident: shown.Sum("process_resident_memory_bytes")}
	for _, m := range shown.With("controller_runtime_reconcile_total") {
		u.passes += m.GetCounter().GetValue()
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		u.writes += shown.Sum("rest_client_requests_total", "method", method)
	}
	return u
}

func (c *crowd) tell(what string, took time.Duration, before, after usage) {
	c.t.Logf("%s: %s; manager: %.2f CPU seconds, %.0f passes, %.0f writes, %.0f MiB resident", what, took.Round(time.Millisecond),
		after.cpu-before.cpu, after.passes-before.passes, after.writes-before.writes, after.resident/(1<<20))
}

// await is harness.Eventually for what grows with the number of objects.
func (c *crowd) await(what string, met func() error) {
	c.t.Helper()
	if err := harness.Await(c.t.Context(), what, patience, func(context.Context) error { return met() }); err != nil {
		c.t.Fatal(err)
	}
}

// Many objects wait, and each tenth has failed: nobody writes anything for as long as nothing changes, and wake-ups make no try of
// what failed.
func TestManyObjectsWait(t *testing.T) {
	n, quiet := number(t, objectsEnv, 200), time.Duration(number(t, quietEnv, 12))*time.Second
	woken := min(n/2, 500)
	c := newCrowd(t, n)
	began, before := time.Now(), usage{}
	c.each(n, func(ctx context.Context, obj *unstructured.Unstructured) error { return c.Client.Create(ctx, obj) })
	c.await("all objects to wait", func() error {
		if _, _, attempts, waiting := c.versions(); waiting < n || attempts < (n+9)/10 {
			return fmt.Errorf("%d of %d wait, of which %d have failed\n%s", waiting, n, attempts, c.manager.Tail(3))
		}
		return nil
	})
	var objects map[string]string
	c.await("all views to be written", func() error {
		last := objects
		if objects, _, _, _ = c.versions(); cmp.Diff(last, objects) != "" {
			return errors.New("some views were written")
		}
		return nil
	})
	after := c.usage()
	c.tell(fmt.Sprintf("%d objects until all wait", n), time.Since(began), before, after)

	objects, states, attempts, _ := c.versions()
	began, before = time.Now(), c.usage()
	time.Sleep(quiet) // what does not happen has no event to wait for
	nowObjects, nowStates, nowAttempts, _ := c.versions()
	after = c.usage()
	c.tell("while they wait", time.Since(began), before, after)
	if diff := cmp.Diff(objects, nowObjects) + cmp.Diff(states, nowStates); diff != "" || nowAttempts != attempts || after.writes != before.writes {
		t.Errorf("%.0f writes while nothing changed (-before +after):\n%.2000s", after.writes-before.writes, diff)
	}

	began, before = time.Now(), c.usage()
	c.each(woken, func(ctx context.Context, obj *unstructured.Unstructured) error {
		return c.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"somebody":"was here"}}}`)))
	})
	c.await("the objects to be looked at", func() error {
		if looked := c.usage().passes - before.passes; looked < float64(woken) {
			return fmt.Errorf("%.0f passes", looked)
		}
		return nil
	})
	_, nowStates, nowAttempts, _ = c.versions()
	after = c.usage()
	c.tell(fmt.Sprintf("%d woken at once", woken), time.Since(began), before, after)
	if diff := cmp.Diff(states, nowStates); diff != "" || nowAttempts != attempts || after.writes != before.writes {
		t.Errorf("%d attempts, %d before; %.0f writes of the manager (-before +after):\n%.2000s", nowAttempts, attempts, after.writes-before.writes, diff)
	}
}
