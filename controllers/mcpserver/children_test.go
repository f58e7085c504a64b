package mcpserver

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
)

// token is that of the restart that is being carried out.
const token = "2026-05-02T10:00:00Z"

// newWorkload is a server in the middle of a restart, with all that the operator
// and a proxy make.
func newWorkload(ctx context.Context, c client.Client) (*server, error) {
	srv, err := newServer(ctx, c, httpServer)
	if err != nil {
		return nil, err
	}
	if err := c.Create(ctx, restarting(srv)); err != nil {
		return nil, err
	}
	if _, err := do(ctx, c, srv, "EnsureWorkload"); err != nil {
		return nil, err
	}
	return srv, deploy(ctx, c, srv, 1)
}

// restarting is the state of a server that carries the restart out.
func restarting(srv *server) *v1alpha1.MachineState {
	state := &v1alpha1.MachineState{}
	state.Name = v1alpha1.MachineStateName(runner.OnceMachine, srv.UID)
	state.Spec = v1alpha1.MachineStateSpec{Machine: runner.OnceMachine, Object: v1alpha1.ObjectReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPServer", Namespace: srv.Namespace, Name: srv.Name, UID: srv.UID,
	}}
	state.Status.MachineStatus = v1alpha1.MachineStatus{Phase: "Restarting", Requests: []v1alpha1.RequestStatus{{Name: restartRequest, Token: token}}}
	return state
}

// deploy is what a proxy of a generation does when it starts.
func deploy(ctx context.Context, c client.Client, srv *server, generation int64) error {
	rc := runConfig(srv)
	rc.MCPServerGeneration = generation
	_, err := backend.Deploy(ctx, c, backend.Config{Namespace: srv.Namespace, Run: rc, Image: srv.Spec.Image})
	return err
}

// observed plays the controllers, which see what was written to them.
func observed(ctx context.Context, c client.Client, srv *server) error {
	key := client.ObjectKeyFromObject(srv)
	deployment, set := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	if err := c.Get(ctx, key, deployment); err != nil {
		return err
	}
	if err := c.Get(ctx, key, set); err != nil {
		return err
	}
	deployment.Status.ObservedGeneration, set.Status.ObservedGeneration = deployment.Generation, set.Generation
	if err := c.Status().Update(ctx, deployment); err != nil {
		return err
	}
	return c.Status().Update(ctx, set)
}

// newPods makes pods of the server and of others, as controllers would.
func newPods(ctx context.Context, c client.Client, srv *server) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: srv.Namespace, Name: "default"}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, account)); err != nil {
		return err
	}
	proxy, server := v1beta1.ProxyLabels(srv.Name), v1beta1.BackendSelector(srv.Name)
	proxy[appsv1.DefaultDeploymentUniqueLabelKey] = "abc"
	for _, p := range []struct {
		name             string
		labels           map[string]string
		kind, controller string
		stamp            string
	}{
		{"fetch-abc-old", proxy, "ReplicaSet", "fetch-abc", "2026-05-01T10:00:00Z"},
		{"fetch-abc-new", proxy, "ReplicaSet", "fetch-abc", token},
		{"fetch-0", server, "StatefulSet", "fetch", ""},
		{"fetch-1", server, "StatefulSet", "fetch", token},
		{"job-of-somebody", proxy, "Job", "import", ""},
		{"set-of-somebody", server, "StatefulSet", "fetcher", ""},
		{"by-hand", server, "", "", ""},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: srv.Namespace, Name: p.name, Labels: p.labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if p.stamp != "" {
			pod.Annotations = map[string]string{v1beta1.AnnotationRestartedAt: p.stamp}
		}
		if p.kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: p.kind, Name: p.controller, UID: types.UID(p.controller), Controller: new(true)}}
		}
		if err := c.Create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func actionOf(s Settings, name string) func(client.Client) runner.Action[*server] {
	return func(c client.Client) runner.Action[*server] { return (&steps{Settings: s, client: c}).actions()[name] }
}

func TestActionsAreIdempotent(t *testing.T) {
	of := func(spec v1beta1.MCPServerSpec) func(context.Context, client.Client) (*server, error) {
		return func(ctx context.Context, c client.Client) (*server, error) { return newServer(ctx, c, spec) }
	}
	rich, asking := v1beta1.MCPServerSpec{
		Image: "example.org/fetch:1", Args: []string{"--verbose", ""}, Replicas: new(int32(3)),
		Env: []v1beta1.EnvVar{{Name: "B", Value: "2"}, {Name: "A", Value: ""}}, Resources: v1beta1.ResourceRequirements{Limits: v1beta1.ResourceList{CPU: "1000m"}},
		Secrets: []v1beta1.SecretRef{{Name: "token", Key: "TOKEN"}}, SessionAffinity: "None", ServiceAccount: new("own"),
		PodTemplateSpec: &runtime.RawExtension{Raw: []byte(`{"spec":{"nodeSelector":{"disk":"ssd"}}}`)},
		ResourceOverrides: &v1beta1.ResourceOverrides{
			ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{
				MetadataOverrides: v1beta1.MetadataOverrides{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": ""}},
				Env:               []v1beta1.EnvVar{{Name: "TOOLHIVE_DEBUG", Value: "true"}}, ImagePullSecrets: []v1beta1.LocalObjectReference{{Name: "pull"}}},
			ProxyService: &v1beta1.MetadataOverrides{Labels: map[string]string{"team": "a"}}},
	}, httpServer
	much(&asking)
	stopped := func(ctx context.Context, c client.Client) (*server, error) {
		srv, err := newServer(ctx, c, v1beta1.MCPServerSpec{Image: "a", Replicas: new(int32(0))})
		if err != nil {
			return nil, err
		}
		_, err = backendOf(ctx, c, srv, new(int32(3)))
		return srv, err
	}
	made := []string{"apply ServiceAccount", "apply ServiceAccount", "apply Role", "apply RoleBinding", "apply Service", "apply ConfigMap", "apply Deployment"}
	withPods := func(ctx context.Context, c client.Client) (*server, error) {
		srv, err := newWorkload(ctx, c)
		if err != nil {
			return nil, err
		}
		return srv, newPods(ctx, c, srv)
	}
	cases := map[string]struct {
		settings Settings
		action   string
		with     fsm.Params
		setup    func(context.Context, client.Client) (*server, error)
		want     []string
	}{
		"make the least":   {own, "EnsureWorkload", nil, of(httpServer), made},
		"make much":        {own, "EnsureWorkload", nil, of(rich), made[1:]}, // the account of the server is the user's
		"stop the backend": {own, "EnsureWorkload", nil, stopped, append(slices.Clone(made), "apply StatefulSet")},
		"make theirs":      {theirs, "EnsureWorkload", nil, of(asking), slices.Insert(slices.Clone(made), 6, "apply ConfigMap")},
		"stamp":            {own, "StampPodTemplates", nil, newWorkload, []string{"apply Deployment", "apply StatefulSet"}},
		// The action waits first, until the controllers have seen the workload.
		"delete pods":        {own, "DeletePods", nil, withPods, []string{"delete Pod", "delete Pod"}},
		"delete the proxy":   {own, "DeleteChildren", fsm.Params{"part": "proxy"}, newWorkload, []string{"delete Deployment"}},
		"delete the backend": {own, "DeleteChildren", fsm.Params{"part": "backend"}, newWorkload, []string{"delete StatefulSet", "delete Service", "delete Service"}},
		"delete the rest":    {own, "DeleteChildren", fsm.Params{"part": "rest"}, newWorkload, []string{"delete Service", "delete ConfigMap", "delete RoleBinding", "delete Role", "delete ServiceAccount", "delete ServiceAccount"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			covered := runnertest.Idempotent(t, runnertest.Case[*server]{
				Client: shared.Cluster(t).Client, Setup: c.setup, Action: actionOf(c.settings, c.action), Meanwhile: observed,
				With: func(*server) fsm.Params { return c.with },
			})
			if diff := cmp.Diff(c.want, covered.Writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func podNames(t *testing.T, c client.Client, namespace string) []string {
	t.Helper()
	list := &corev1.PodList{}
	if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

func TestDeletePodsTakesOursWithoutTheToken(t *testing.T) {
	c := shared.Cluster(t).Client
	srv, err := newWorkload(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range []func(context.Context, client.Client, *server) error{newPods, observed} {
		if err := prepare(t.Context(), c, srv); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := do(t.Context(), c, srv, "DeletePods"); err != nil {
		t.Fatal(err)
	}
	want := []string{"by-hand", "fetch-1", "fetch-abc-new", "job-of-somebody", "set-of-somebody"}
	if diff := cmp.Diff(want, podNames(t, c, srv.Namespace)); diff != "" {
		t.Errorf("pods that are left (-want +got):\n%s", diff)
	}
}

// meddler lets somebody else act right before the first write.
type meddler struct {
	client.Client
	before func()
}

func (m *meddler) meddle() {
	if m.before != nil {
		m.before()
		m.before = nil
	}
}

func (m *meddler) Delete(ctx context.Context, obj client.Object, o ...client.DeleteOption) error {
	m.meddle()
	return m.Client.Delete(ctx, obj, o...)
}

func (m *meddler) Apply(ctx context.Context, body runtime.ApplyConfiguration, o ...client.ApplyOption) error {
	m.meddle()
	return m.Client.Apply(ctx, body, o...)
}

// replaceDeployment puts another one in the place of ours.
func replaceDeployment(t *testing.T, c client.Client, key client.ObjectKey) {
	t.Helper()
	live := &appsv1.Deployment{}
	if err := c.Get(t.Context(), key, live); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), live); err != nil {
		t.Error(err)
	}
	live.ResourceVersion, live.UID, live.OwnerReferences, live.ManagedFields = "", "", nil, nil
	if err := c.Create(t.Context(), live); err != nil {
		t.Error(err)
	}
}

// What has our name by now is not what was read: it is neither stamped nor deleted.
func TestRecreatedByAnotherBetweenReadAndWrite(t *testing.T) {
	cases := map[string]struct {
		why    string
		action string
		with   fsm.Params
		want   outputs
	}{
		"stamp":  {"refused, and tried again: the next look finds that it is somebody else's", "StampPodTemplates", nil, nil},
		"delete": {"what somebody else made is not waited for", "DeleteChildren", fsm.Params{"part": "proxy"}, outputs{"remaining": []string{}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			admin := shared.Cluster(t).Client
			srv, err := newWorkload(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKeyFromObject(srv)
			if err := admin.Get(t.Context(), key, srv); err != nil {
				t.Fatal(err)
			}
			m := &meddler{Client: admin, before: func() { replaceDeployment(t, admin, key) }}
			got, err := runner.Once(t.Context(), m, srv, actionOf(own, c.action)(m), c.with, nil)
			if refused := apierrs.IsInvalid(err); refused != (c.want == nil) || err != nil && !refused {
				t.Fatalf("%s: error = %v", c.why, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			now := &appsv1.Deployment{}
			if err := admin.Get(t.Context(), key, now); err != nil {
				t.Fatalf("somebody else's Deployment: %v", err)
			}
			if now.DeletionTimestamp != nil || now.Spec.Template.Annotations[v1beta1.AnnotationRestartedAt] != "" {
				t.Errorf("somebody else's Deployment was changed: %+v", now.ObjectMeta)
			}
		})
	}
}
