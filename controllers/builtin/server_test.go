package builtin_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// plan and site are kinds that machines drive here; a site is cluster-scoped.
type plan = generic.Object

var (
	planKind = schema.GroupVersionKind{Group: "builtin.phasegate.dev", Version: "v1", Kind: "Plan"}
	siteKind = schema.GroupVersionKind{Group: "builtin.phasegate.dev", Version: "v1", Kind: "Site"}
)

// noon is when the clocks of these tests stand.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// shared is the API server of all tests here: each test has a namespace of its own.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

// startServer has the garbage collector, and no other controllers: the tests play them.
func startServer() (*harness.Cluster, error) {
	ctx := context.Background()
	c, err := harness.Start(ctx, harness.Options{
		Own:     true,
		Without: []string{"fakenodes", "scheduler", "controller-manager"},
		Types: []func(*runtime.Scheme) error{v1alpha1.AddToScheme, func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(planKind, &plan{})
			metav1.AddToGroupVersion(s, planKind.GroupVersion())
			return nil
		}},
	})
	if err != nil {
		return nil, err
	}
	states, err := crds.ReadDir(filepath.Join("..", "..", "charts", "phasegate", "files", "crds"))
	if err == nil {
		err = crds.Install(ctx, c.Config, crds.Set{CRDs: states})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	for kind, scope := range map[schema.GroupVersionKind]apiextensionsv1.ResourceScope{
		planKind: apiextensionsv1.NamespaceScoped, siteKind: apiextensionsv1.ClusterScoped,
	} {
		if err := c.Client.Create(ctx, crd(kind, scope)); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		err := harness.Await(ctx, kind.Kind+"s to be served", time.Minute, func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			return c.Client.List(ctx, list)
		})
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	collector, err := harness.Binary("tools/kube-controller-manager")
	if err == nil {
		_, err = harness.StartProcess(harness.Program{Name: "garbage-collector", Path: collector, LogDir: c.LogDir,
			Args: []string{"--kubeconfig=" + c.Kubeconfig, "--controllers=garbage-collector-controller", "--leader-elect=false", "--secure-port=0"}})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func crd(kind schema.GroupVersionKind, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	plural := strings.ToLower(kind.Kind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}

// newPlan makes a plan in a namespace of its own, on its first visit to a phase.
func newPlan(ctx context.Context, c client.Client) (*plan, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plans-"}}
	if err := c.Create(ctx, ns); err != nil {
		return nil, err
	}
	obj := &plan{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "plan"}, Spec: map[string]any{"size": int64(1)}}
	if err := c.Create(ctx, obj); err != nil {
		return nil, err
	}
	return obj, visit(ctx, c, obj, "Working", noon)
}

// visit lets an object enter a phase.
func visit(ctx context.Context, c client.Client, obj *plan, phase string, since time.Time) error {
	at := metav1.NewMicroTime(since)
	before := obj.DeepCopyObject().(*plan)
	obj.Status.Machine.Phase, obj.Status.Machine.EnteredAt = phase, &at
	return c.Status().Patch(ctx, obj, client.MergeFrom(before))
}

// nextVisit lets a plan enter its phase again.
func nextVisit(t *testing.T, c client.Client, p *plan) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if err := visit(t.Context(), c, p, "Working", noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func plansFor(t *testing.T) (client.WithWatch, *plan) {
	t.Helper()
	c := shared.Cluster(t).Client
	obj, err := newPlan(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return c, obj
}

// local is leave to ask the servers of these tests.
func local(hosts ...string) builtin.HTTP {
	return builtin.HTTP{AllowHosts: hosts, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

// act calls an action for the plan as it is stored.
func act(t *testing.T, c client.Client, name string, of *plan, with fsm.Params) (map[string]any, error) {
	t.Helper()
	return actWith(t, builtin.Options{Client: c}, name, of, with)
}

func actWith(t *testing.T, o builtin.Options, name string, of *plan, with fsm.Params) (map[string]any, error) {
	t.Helper()
	return actAs(t, o, "Working/"+name, name, of, with)
}

// actAs calls an action as a step of that ID.
func actAs(t *testing.T, o builtin.Options, stepID, name string, of *plan, with fsm.Params) (map[string]any, error) {
	t.Helper()
	obj := &plan{}
	if err := shared.Cluster(t).Client.Get(t.Context(), client.ObjectKeyFromObject(of), obj); err != nil {
		t.Fatal(err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(shared.Cluster(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	o.Discovery = api
	action := builtin.Actions[*plan](o)[name]
	do := action.Do
	action.Do = func(ctx context.Context, s *runner.Scope[*plan]) (map[string]any, error) {
		s.StepID = stepID
		return do(ctx, s)
	}
	return runner.Once(t.Context(), o.Client, obj, action, with, clocktesting.NewFakeClock(noon))
}

// content is an object as a machine file would have it.
func content(apiVersion, kind, name string, fields map[string]any) map[string]any {
	obj := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	for key, value := range fields {
		obj[key] = value
	}
	return obj
}

func configMap(name, key, value string) map[string]any {
	return content("v1", "ConfigMap", name, map[string]any{"data": map[string]any{key: value}})
}

// stored reads an object back.
func stored(t *testing.T, namespace, apiVersion, kind, name string) (*unstructured.Unstructured, error) {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	return obj, shared.Cluster(t).Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj)
}

// somebodys is an object of another owner.
func somebodys(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"key": "theirs"}}
}

// reasonOf is the reason of a terminal error, "waits" for a wait, and the text of
// any other error.
func reasonOf(err error) string {
	var terminal *fsm.TerminalError
	var wait *fsm.WaitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &terminal):
		return terminal.Reason
	case errors.As(err, &wait):
		return "waits"
	}
	return err.Error()
}
