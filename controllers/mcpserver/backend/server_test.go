package backend_test

import (
	"context"
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/test/support/harness"
)

// shared has no controllers: what is tested is what a proxy writes.
var shared = harness.Shared{Start: func() (*harness.Cluster, error) {
	return harness.Start(context.Background(), harness.Options{Own: true,
		Without: []string{"fakenodes", "scheduler", "controller-manager"}})
}}

func TestMain(m *testing.M) { shared.Main(m) }

// world is a namespace and the configuration of a proxy in it, for a test to change.
type world struct {
	*testing.T
	// admin is not counted.
	admin  client.WithWatch
	client client.Client
	config backend.Config
	writes int
	// beforeWrite is called before each write of the proxy; nil for nothing.
	beforeWrite func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, admin: shared.Cluster(t).Client}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "backend-"}}
	if err := w.admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.client = interceptor.NewClient(w.admin, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, body runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			w.writes++
			if w.beforeWrite != nil {
				w.beforeWrite()
			}
			return c.Apply(ctx, body, o...)
		},
	})
	w.config = backend.Config{
		Namespace: namespace.Name, Image: "example.org/fetch:1",
		Run: &runconfig.RunConfig{
			Name: "fetch", Transport: v1beta1.TransportStreamableHTTP, TargetPort: 30080, MCPServerGeneration: 5,
			CmdArgs: []string{"--verbose"},
			EnvVars: map[string]string{"MCP_TRANSPORT": "streamable-http", "B": "2", "A": "1"},
			Owner: &runconfig.Owner{APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPServer", Name: "fetch",
				UID: "11111111-1111-1111-1111-111111111111"},
		},
	}
	return w
}

// with is the same proxy after change.
func (w *world) with(change func(*backend.Config)) backend.Config {
	cfg := w.config
	run := *cfg.Run
	cfg.Run = &run
	change(&cfg)
	return cfg
}

func (w *world) deploy(cfg backend.Config) backend.Result {
	w.Helper()
	result, err := backend.Deploy(w.Context(), w.client, cfg)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// live reads the backend's StatefulSet.
func (w *world) live() *appsv1.StatefulSet {
	w.Helper()
	s := &appsv1.StatefulSet{}
	if err := w.admin.Get(w.Context(), client.ObjectKey{Namespace: w.config.Namespace, Name: "fetch"}, s); err != nil {
		w.Fatal(err)
	}
	return s
}

// service reads one; nil if there is none.
func (w *world) service(name string) *corev1.Service {
	w.Helper()
	s := &corev1.Service{}
	err := w.admin.Get(w.Context(), client.ObjectKey{Namespace: w.config.Namespace, Name: name}, s)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return s
}

// edit is what somebody else does to the StatefulSet, as manager.
func (w *world) edit(manager string, patch map[string]any) {
	w.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		w.Fatal(err)
	}
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.config.Namespace, Name: "fetch"}}
	if err := w.admin.Patch(w.Context(), s, client.RawPatch("application/strategic-merge-patch+json", body), client.FieldOwner(manager)); err != nil {
		w.Fatal(err)
	}
}

// templateAnnotations is a patch that sets annotations of the pod template.
func templateAnnotations(of map[string]string) map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": of}}}}
}

func imageOf(s *appsv1.StatefulSet) string { return s.Spec.Template.Spec.Containers[0].Image }
