package copier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// Tests with newLive run on a real API server with the garbage collector: what matters there is what it refuses,
// fills in and deletes, and who owns which field.

// shared is the cluster of all such tests, once newLive has cleared it.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

func startServer() (*harness.Cluster, error) {
	ctx := context.Background() // it outlives the test that starts it
	c, err := harness.Start(ctx, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler"}})
	if err != nil {
		return nil, err
	}
	set, err := crds.Load(resources.Default())
	if err == nil {
		err = crds.Install(ctx, c.Config, set)
	}
	if err == nil {
		err = awaitPolicies(ctx, c.Client)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// awaitPolicies waits until the API server's mutating policies have read the schemas of the new CRDs, which they
// do every five seconds. Until then each write that one of them matches is unavailable.
func awaitPolicies(ctx context.Context, c client.Client) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, kind := range resources.Default().Kinds() {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			obj.SetGroupVersionKind(kind.V3GVK())
			obj.SetName("probe")
			if kind.Namespaced() {
				obj.SetNamespace("default")
			}
			if err := c.Create(ctx, obj, client.DryRunAll); apierrs.IsServiceUnavailable(err) {
				return false, nil
			}
		}
		return true, nil
	})
}

// newLive clears both sides. faults, if given, stands between the copier and the API server.
func newLive(t *testing.T, faults interceptor.Funcs) (*world, *Copier) {
	t.Helper()
	cluster := shared.Cluster(t)
	w := &world{T: t, client: cluster.Client, config: cluster.Config}
	// All kinds at once: the first request for a kind takes the API server a second.
	var g errgroup.Group
	for _, kind := range resources.Default().Kinds() {
		for _, gvk := range []schema.GroupVersionKind{kind.V3GVK(), kind.V1GVK()} {
			g.Go(func() error { return w.clearKind(gvk) })
		}
	}
	w.must(g.Wait())
	return w, w.copier(faults, WithEqualityCache(NewEqualityCache()))
}

func (w *world) clearKind(gvk schema.GroupVersionKind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := w.client.List(w.Context(), list); err != nil {
		return err
	}
	for i := range list.Items {
		obj := &list.Items[i]
		if len(obj.GetFinalizers()) > 0 {
			before := obj.DeepCopy()
			obj.SetFinalizers(nil)
			if err := w.client.Patch(w.Context(), obj, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		// The built-in tiers may be protected; they are equal in all tests.
		if err := w.client.Delete(w.Context(), obj); client.IgnoreNotFound(err) != nil && !builtin[obj.GetName()] {
			return err
		}
	}
	return nil
}

var builtin = map[string]bool{"default": true, "kube-admin": true, "kube-baseline": true}

// awaitAdmitted waits until admission makes these labels of team=blue: the API server notices a policy within a second.
func (w *world) awaitAdmitted(ctx context.Context, want map[string]string) {
	w.must(harness.Await(ctx, "the policy", 30*time.Second, func(ctx context.Context) error {
		probe := named(v3("GlobalNetworkSet"), "probe")
		probe.Object["spec"] = map[string]any{}
		probe.SetLabels(map[string]string{"team": "blue"})
		err := w.client.Create(ctx, probe, client.DryRunAll)
		if got := probe.GetLabels(); err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("labelled %v, want %v", got, want)
		}
		return err
	}))
}

// labelling is an admission policy of somebody who labels, or unlabels, every v3 object, until the test
// ends: until then it is no more.
func (w *world) labelling(operations, expression string, labels map[string]string) {
	w.Helper()
	after := context.WithoutCancel(w.Context())
	w.Cleanup(func() { w.awaitAdmitted(after, map[string]string{"team": "blue"}) }) // once the policy is deleted
	admission := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}
	for kind, text := range map[string]string{"MutatingAdmissionPolicy": `
metadata: {name: test-labels}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [projectcalico.org], apiVersions: ["*"], resources: ["*"], operations: [` + operations + `]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '` + expression + `'}}]`, "MutatingAdmissionPolicyBinding": `
metadata: {name: test-labels}
spec: {policyName: test-labels}`} {
		obj := w.create(admission.GroupVersion().WithKind(kind), text)
		w.Cleanup(func() { w.must(w.client.Delete(after, obj)) })
	}
	w.awaitAdmitted(w.Context(), labels)
}
