package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
)

// httpServer is a spec that says as little as it can.
var httpServer = v1beta1.MCPServerSpec{Image: "example.org/fetch:1", Transport: v1beta1.TransportStreamableHTTP}

// world is a server and the objects that were made for it.
type world struct {
	*testing.T
	client client.WithWatch
	srv    *server
	writes int
}

func newWorld(t *testing.T, spec v1beta1.MCPServerSpec) *world {
	t.Helper()
	admin := shared.Cluster(t).Client
	srv, err := newServer(t.Context(), admin, spec)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, srv: srv}
	w.client = countWrites(admin, &w.writes)
	return w
}

// countWrites counts applies that are no dry runs.
func countWrites(c client.WithWatch, writes *int) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, body runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			if all := (&client.ApplyOptions{}).ApplyOptions(o); len(all.DryRun) == 0 {
				*writes++
			}
			return c.Apply(ctx, body, o...)
		}})
}

// ensure calls EnsureWorkload and answers how many writes it took.
func (w *world) ensure() int {
	w.Helper()
	w.writes = 0
	if _, err := do(w.Context(), w.client, w.srv, "EnsureWorkload"); err != nil {
		w.Fatal(err)
	}
	return w.writes
}

// edit is what somebody does with kubectl.
func (w *world) edit(obj client.Object, patch string) {
	w.Helper()
	kind := types.StrategicMergePatchType
	if _, custom := obj.(*server); custom {
		kind = types.MergePatchType
	}
	if err := w.client.Patch(w.Context(), obj, client.RawPatch(kind, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
		w.Fatal(err)
	}
}

func get[T client.Object](w *world, obj T, name string) T {
	w.Helper()
	if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.srv.Namespace, Name: name}, obj); err != nil {
		w.Fatal(err)
	}
	return obj
}

func (w *world) deployment() *appsv1.Deployment { return get(w, &appsv1.Deployment{}, "fetch") }

// file is the run configuration that pods of the proxy read now.
func (w *world) file() runconfig.RunConfig {
	w.Helper()
	var rc runconfig.RunConfig
	if err := json.Unmarshal([]byte(get(w, &corev1.ConfigMap{}, "fetch-runconfig").Data[v1beta1.RunConfigFile]), &rc); err != nil {
		w.Fatal(err)
	}
	return rc
}

// TestWhatRestartsProxies changes the spec of a running server. Whatever the pods
// of the proxy do not depend on leaves their template as it is, the stamp included.
func TestWhatRestartsProxies(t *testing.T) {
	cases := map[string]struct {
		why, change string
		restarts    bool
		writes      int
	}{
		"replicas":            {"one more proxy needs no other one to go", `{"replicas":3}`, false, 1},
		"backend replicas":    {"the number of backend pods is the operator's to change", `{"backendReplicas":2}`, false, 1},
		"session affinity":    {"a matter of the Service", `{"sessionAffinity":"None"}`, false, 1},
		"label of the proxy":  {"a matter of the Deployment's metadata", `{"resourceOverrides":{"proxyDeployment":{"labels":{"team":"a"}}}}`, false, 1},
		"label of a Service":  {"a matter of the Service's metadata", `{"resourceOverrides":{"proxyService":{"labels":{"team":"a"}}}}`, false, 1},
		"another's field":     {"nothing of ours reads it", `{"telemetryConfigRef":{"name":"a"}}`, false, 0},
		"quantity, same":      {"there is none before and none after", `{"resources":{"limits":{"cpu":""}}}`, false, 0},
		"image":               {"the proxy's argument", `{"image":"example.org/fetch:2"}`, true, 2},
		"arguments":           {"proxies read the file when they start", `{"args":["--all"]}`, true, 2},
		"label of proxy pods": {"a label of the pods", `{"resourceOverrides":{"proxyDeployment":{"podTemplateMetadataOverrides":{"labels":{"team":"a"}}}}}`, true, 2},
		"resources":           {"they are in the pod patch, the proxy's argument", `{"resources":{"limits":{"cpu":"1"}}}`, true, 2},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpServer)
			w.ensure()
			before := w.deployment()
			w.edit(w.srv, `{"spec":`+test.change+`}`)
			if writes := w.ensure(); writes != test.writes {
				t.Errorf("%d writes, want %d", writes, test.writes)
			}
			after, stamp := w.deployment(), int64(1)
			if test.restarts {
				stamp = w.srv.Generation
			}
			if changed := !cmp.Equal(before.Spec.Template, after.Spec.Template); changed != test.restarts {
				t.Errorf("%s: changed = %v (-before +after):\n%s", test.why, changed, cmp.Diff(before.Spec.Template, after.Spec.Template))
			}
			if got := w.file().MCPServerGeneration; got != stamp {
				t.Errorf("the file is of generation %d, want %d, as the pods are", got, stamp)
			}
			if again := w.ensure(); again != 0 {
				t.Errorf("%d writes at the next look, want 0", again)
			}
		})
	}
}

// TestSwitches changes what the API server fills in for, which must go with it.
func TestSwitches(t *testing.T) {
	w := newWorld(t, httpServer)
	w.ensure()
	type seen struct {
		Strategy appsv1.DeploymentStrategyType
		Affinity corev1.ServiceAffinity
	}
	look := func() seen {
		return seen{w.deployment().Spec.Strategy.Type, get(w, &corev1.Service{}, "mcp-fetch-proxy").Spec.SessionAffinity}
	}
	for _, step := range []struct {
		patch string
		want  seen
	}{
		{`{"spec":{"transport":"stdio","sessionAffinity":"None"}}`, seen{"Recreate", "None"}},
		{`{"spec":{"transport":"sse","sessionAffinity":"ClientIP"}}`, seen{"RollingUpdate", "ClientIP"}},
		{`{"spec":{"transport":"stdio","sessionAffinity":"None"}}`, seen{"Recreate", "None"}},
	} {
		w.edit(w.srv, step.patch)
		w.ensure()
		if diff := cmp.Diff(step.want, look()); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.patch, diff)
		}
		if again := w.ensure(); again != 0 {
			t.Errorf("after %s: %d writes at the next look, want 0", step.patch, again)
		}
	}
}

func TestReplicasOfProxies(t *testing.T) {
	cases := map[string]struct {
		why, transport string
		spec           *int32
		// handedOver: the spec names no number any more; scaled is what somebody makes of it then.
		handedOver bool
		scaled     string
		want       int32
	}{
		"unset":               {"an autoscaler's to choose", v1beta1.TransportSSE, nil, false, "5", 5},
		"set":                 {"the spec's", v1beta1.TransportSSE, new(int32(2)), false, "5", 2},
		"stdio, set":          {"one proxy can be attached", v1beta1.TransportStdio, new(int32(3)), false, "", 1},
		"stdio, unset":        {"one proxy can be attached, whoever scales", v1beta1.TransportStdio, nil, false, "5", 1},
		"stdio, stopped":      {"scaled to zero by hand", v1beta1.TransportStdio, nil, false, "0", 0},
		"unset, stopped":      {"scaled to zero by hand", v1beta1.TransportSSE, nil, false, "0", 0},
		"stopped by the spec": {"scaled up by hand against the spec", v1beta1.TransportSSE, new(int32(0)), false, "2", 0},
		"unset, running":      {"an autoscaler takes over what it finds", v1beta1.TransportSSE, new(int32(3)), true, "", 3},
		"unset, was stopped":  {"nothing else would start it again", v1beta1.TransportSSE, new(int32(0)), true, "", 1},
		"unset, then scaled":  {"the autoscaler's number stays", v1beta1.TransportSSE, new(int32(3)), true, "5", 5},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, v1beta1.MCPServerSpec{Image: "example.org/fetch:1", Transport: test.transport, Replicas: test.spec})
			w.ensure()
			if test.handedOver {
				w.edit(w.srv, `{"spec":{"replicas":null}}`)
				w.ensure()
			}
			if test.scaled != "" {
				w.edit(w.deployment(), `{"spec":{"replicas":`+test.scaled+`}}`)
			}
			for range 3 { // it stays there
				if writes := w.ensure(); test.handedOver && writes != 0 {
					t.Errorf("%d writes, want none: %s", writes, test.why)
				}
				if got := *w.deployment().Spec.Replicas; got != test.want {
					t.Errorf("%d replicas, want %d: %s", got, test.want, test.why)
				}
			}
			if again := w.ensure(); again != 0 {
				t.Errorf("%d writes at the next look, want 0", again)
			}
		})
	}
}

func TestTakenNames(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	pods := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	for _, theirs := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta("fetch-proxy-runner")},
		&corev1.ServiceAccount{ObjectMeta: meta("fetch-sa")},
		&rbacv1.Role{ObjectMeta: meta("fetch-proxy-runner")},
		&rbacv1.RoleBinding{ObjectMeta: meta("fetch-proxy-runner"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "view"}},
		&corev1.ConfigMap{ObjectMeta: meta("fetch-runconfig")},
		&corev1.Service{ObjectMeta: meta("mcp-fetch-proxy"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&appsv1.Deployment{ObjectMeta: meta("fetch"), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: pods}},
	} {
		w := newWorld(t, httpServer)
		theirs.SetNamespace(w.srv.Namespace)
		if err := w.client.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		_, err := do(t.Context(), w.client, w.srv, "EnsureWorkload")
		if reason, says := terminal(err); reason != "NameTaken" ||
			!strings.Contains(says, theirs.GetName()+" belongs to no owner") || !strings.Contains(says, "choose another name") {
			t.Errorf("%T %s: error = %v, want a terminal one that names it and the remedy", theirs, theirs.GetName(), err)
		}
		if now := get(w, theirs.DeepCopyObject().(client.Object), theirs.GetName()); now.GetResourceVersion() != theirs.GetResourceVersion() {
			t.Errorf("%T %s was written", theirs, theirs.GetName())
		}
	}
}

func TestObjectOnItsWayOutIsWaitedFor(t *testing.T) {
	w := newWorld(t, httpServer)
	w.ensure()
	going := get(w, &corev1.Service{}, "mcp-fetch-proxy")
	w.edit(going, `{"metadata":{"finalizers":["test.phasegate.dev/hold"]}}`)
	if err := w.client.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	_, err := do(t.Context(), w.client, w.srv, "EnsureWorkload")
	var wait *fsm.WaitError
	if !errors.As(err, &wait) || !strings.Contains(err.Error(), "mcp-fetch-proxy is being deleted") {
		t.Errorf("error = %v, want a wait that names the Service", err)
	}
	w.edit(going, `{"metadata":{"finalizers":null}}`)
	if writes := w.ensure(); writes == 0 {
		t.Error("the Service was not made again")
	}
}

func TestWhatTheServerRefusesIsTerminal(t *testing.T) {
	spec := httpServer
	spec.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyService: &v1beta1.MetadataOverrides{Labels: map[string]string{"a label": "with a space"}}}
	w := newWorld(t, spec)
	_, err := do(t.Context(), w.client, w.srv, "EnsureWorkload")
	if reason, says := terminal(err); reason != "InvalidSpec" || !strings.Contains(says, "a label") {
		t.Errorf("error = %v, want a terminal one that names the label", err)
	}
}
