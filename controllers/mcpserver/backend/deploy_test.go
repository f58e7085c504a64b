package backend_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

func scale(n int32) *runconfig.ScalingConfig { return &runconfig.ScalingConfig{BackendReplicas: &n} }

// applyAsProxy applies obj with the field manager that the peer's proxy uses, too.
func (w *world) applyAsProxy(obj client.Object) {
	w.Helper()
	gvk, err := w.admin.GroupVersionKindFor(obj)
	if err != nil {
		w.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		w.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	if err := w.admin.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1beta1.BackendFieldManager), client.ForceOwnership); err != nil {
		w.Fatal(err)
	}
}

func TestPodsAreTheUsersOverSafeDefaults(t *testing.T) {
	w := newWorld(t)
	w.config.PodPatch = []byte(`{"metadata":{"labels":{"app":"other","team":"a"},"annotations":{"note":"x","` + stamp + `":"99"}},
		"spec":{"restartPolicy":"Never","serviceAccountName":"fetch-sa","securityContext":{"runAsUser":7},"containers":[
		{"name":"log","image":"example.org/log:1"},
		{"name":"mcp","image":"not/this","env":[{"name":"Z","value":"z"},{"name":"A","value":"not this"}],"securityContext":{"readOnlyRootFilesystem":true},
		 "resources":{"limits":{"cpu":"0.5"}}}]}}`)
	w.config.Run.ContainerLabels = map[string]string{"toolhive-transport": "streamable-http", "app": "nor this"}
	w.deploy(w.config)
	all := func() []client.Object {
		return []client.Object{w.live(), w.service("mcp-fetch"), w.service("mcp-fetch-headless")}
	}
	first, live := all(), w.live()
	w.deploy(w.config)
	if diff := cmp.Diff(first, all()); diff != "" || w.writes != 3 {
		t.Errorf("%d writes, want one for each of StatefulSet and two Services, and none at the second look (-first +second):\n%s", w.writes, diff)
	}
	template := live.Spec.Template

	wantMeta := metav1.ObjectMeta{
		Labels:      map[string]string{"app": "fetch", "toolhive": "true", "toolhive-name": "fetch", "toolhive-transport": "streamable-http", "team": "a"},
		Annotations: map[string]string{"note": "x", stamp: "5"},
	}
	if diff := cmp.Diff(wantMeta, template.ObjectMeta); diff != "" {
		t.Errorf("metadata of the pods (-want +got):\n%s", diff)
	}
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(7)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(1000)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(wantPod, template.Spec.SecurityContext); diff != "" {
		t.Errorf("security of the pods (-want +got):\n%s", diff)
	}
	containers := template.Spec.Containers
	if len(containers) != 2 {
		t.Fatalf("%d containers, want mcp and log", len(containers))
	}
	got := containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "mcp" })]
	want := corev1.Container{
		Name: "mcp", Image: "example.org/fetch:1", Args: []string{"--verbose"},
		Env:   []corev1.EnvVar{{Name: "Z", Value: "z"}, {Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "MCP_TRANSPORT", Value: "streamable-http"}, {Name: "MCP_HOST"}},
		Ports: []corev1.ContainerPort{{ContainerPort: 30080, Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
		// The API server's.
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways || template.Spec.ServiceAccountName != "fetch-sa" {
		t.Errorf("restartPolicy %s, serviceAccountName %s; want Always and fetch-sa", template.Spec.RestartPolicy, template.Spec.ServiceAccountName)
	}
	if live.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || live.Spec.ServiceName != "mcp-fetch-headless" {
		t.Errorf("%s, service %s; want Parallel and mcp-fetch-headless", live.Spec.PodManagementPolicy, live.Spec.ServiceName)
	}
}

func TestDeployWorkloadCreatesBackendServices(t *testing.T) {
	type service struct {
		Owner, ClusterIP string
		Spec             corev1.ServiceSpec
	}
	of := func(s *corev1.Service) *service {
		if s == nil {
			return nil
		}
		got := &service{Spec: corev1.ServiceSpec{
			Type: s.Spec.Type, Selector: s.Spec.Selector, Ports: s.Spec.Ports, SessionAffinity: s.Spec.SessionAffinity,
		}}
		if o := metav1.GetControllerOf(s); o != nil {
			got.Owner = o.Kind + " " + string(o.UID)
		}
		got.ClusterIP = map[bool]string{true: "None", false: "some"}[s.Spec.ClusterIP == corev1.ClusterIPNone]
		return got
	}
	want := func(clusterIP string, affinity corev1.ServiceAffinity) *service {
		return &service{"MCPServer 11111111-1111-1111-1111-111111111111", clusterIP, corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "fetch"}, SessionAffinity: affinity,
			// A port in the range of node ports is a port like others.
			Ports: []corev1.ServicePort{{Name: "port-30080", Port: 30080, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		}}
	}
	call, names := want("some", corev1.ServiceAffinityClientIP), want("None", corev1.ServiceAffinityNone)
	for transport, test := range map[string]struct {
		why         string
		stdin       bool
		call, names *service
	}{
		v1beta1.TransportStdio:          {"there is nothing to call", true, nil, nil},
		v1beta1.TransportSSE:            {"a session is in one pod: clients stick to it", false, call, names},
		v1beta1.TransportStreamableHTTP: {"a session is in one pod: clients stick to it", false, call, names},
	} {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			w.deploy(w.with(func(cfg *backend.Config) { cfg.Run.Transport = transport }))
			if got := w.live().Spec.Template.Spec.Containers[0].Stdin; got != test.stdin {
				t.Errorf("stdin %v, want %v", got, test.stdin)
			}
			got := []*service{of(w.service("mcp-fetch")), of(w.service("mcp-fetch-headless"))}
			if diff := cmp.Diff([]*service{test.call, test.names}, got); diff != "" {
				t.Errorf("Services (-want +got): %s\n%s", test.why, diff)
			}
		})
	}
}

func TestDeployWorkloadBackendReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		why              string
		before, replicas *runconfig.ScalingConfig
		want, next       int32
	}{
		"nil":            {"an autoscaler decides: its 4 stay", nil, nil, 1, 4},
		"nil2":           {"as without the block", nil, &runconfig.ScalingConfig{}, 1, 4},
		"3":              {"the spec decides", nil, scale(3), 3, 3},
		"1":              {"the spec decides", nil, scale(1), 1, 1},
		"0":              {"a server may have no pods", nil, scale(0), 0, 0},
		"3, and no more": {"left out of an apply, it would become 1", scale(3), nil, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.with(func(cfg *backend.Config) { cfg.Run.ScalingConfig = test.replicas })
			w.deploy(w.with(func(cfg *backend.Config) { cfg.Run.ScalingConfig = test.before }))
			w.deploy(cfg)
			if got := *w.live().Spec.Replicas; got != test.want {
				t.Errorf("%d pods, want %d: %s", got, test.want, test.why)
			}
			w.edit("autoscaler", map[string]any{"spec": map[string]any{"replicas": 4}})
			w.deploy(cfg)
			if got := *w.live().Spec.Replicas; got != test.next {
				t.Errorf("after another writer's 4: %d pods, want %d: %s", got, test.next, test.why)
			}
		})
	}
}

func TestDeployWorkload_PreservesKubectlRestartedAt(t *testing.T) {
	w := newWorld(t)
	w.deploy(w.config)
	others := map[string]string{
		"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z", v1beta1.AnnotationRestartedAt: "2026-01-02T03:04:06Z",
	}
	w.edit("kubectl-rollout", templateAnnotations(others))
	w.deploy(w.with(func(cfg *backend.Config) { cfg.Image, cfg.Run.MCPServerGeneration = "example.org/fetch:2", 6 }))
	others[stamp] = "6"
	if diff := cmp.Diff(others, w.live().Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of the pods (-want +got):\n%s", diff)
	}
}

// The peer's proxy gives its StatefulSet no owner, and its Services the StatefulSet.
func TestWhatThePeersProxyMadeIsTakenOver(t *testing.T) {
	w := newWorld(t)
	w.theirs("4")
	set := w.live()
	w.applyAsProxy(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: "mcp-fetch", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "fetch", UID: set.UID, Controller: new(true), BlockOwnerDeletion: new(true)}}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "fetch"},
			Ports: []corev1.ServicePort{{Name: "port-8080", Port: 8080, Protocol: corev1.ProtocolTCP}}},
	})
	w.deploy(w.config)
	live := w.live()
	if o := metav1.GetControllerOf(live); o == nil || o.Kind != "MCPServer" || live.UID != set.UID {
		t.Errorf("controller %v of StatefulSet %s, want the MCPServer and %s", o, live.UID, set.UID)
	}
	if live.Spec.ServiceName != "fetch" || live.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement {
		t.Errorf("service %s, %s; want what cannot be changed as it was", live.Spec.ServiceName, live.Spec.PodManagementPolicy)
	}
	if s := w.service("mcp-fetch"); metav1.GetControllerOf(s).UID != set.UID || s.Spec.Ports[0].Port != 30080 {
		t.Errorf("Service: controller %v, port %d", metav1.GetControllerOf(s), s.Spec.Ports[0].Port)
	}
}

func TestBadConfigIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*backend.Config)
		want   string
	}{
		"no owner": {func(cfg *backend.Config) { cfg.Run.Owner = nil }, "runconfig.json of fetch names no owner"},
		"no JSON":  {func(cfg *backend.Config) { cfg.PodPatch = []byte("{") }, "--k8s-pod-patch"},
		"another shape": {func(cfg *backend.Config) {
			cfg.PodPatch = []byte(`{"spec":{"containers":[{"name":"mcp","ports":"x"}]}}`)
		}, "--k8s-pod-patch"},
		"no server": {func(cfg *backend.Config) {
			cfg.PodPatch = []byte(`{"spec":{"containers":[{"$patch":"delete","name":"mcp"}]}}`)
		}, "deletes the container mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := backend.Deploy(t.Context(), w.client, w.with(test.change)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
			if w.writes != 0 {
				t.Errorf("%d writes", w.writes)
			}
		})
	}
}
