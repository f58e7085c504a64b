package mcpserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create("fetch")
	s.kubectl("wait", "--for=condition=Ready", "--timeout=3m", "mcpserver/fetch")

	srv := s.awaitPhase("fetch", "Ready")
	url := fmt.Sprintf("http://mcp-fetch-proxy.%s.svc.cluster.local:8080/mcp", s.ns)
	if srv.Status.URL != url || srv.Status.ReadyReplicas != 1 {
		t.Errorf("url %q, %d ready; want %q, 1", srv.Status.URL, srv.Status.ReadyReplicas, url)
	}
	rows := strings.Split(s.kubectl("get", "mcpserver", "fetch"), "\n")
	if diff := cmp.Diff([]string{"NAME", "STATUS", "READY", "REPLICAS", "URL", "AGE"}, strings.Fields(rows[0])); diff != "" {
		t.Errorf("columns of kubectl get (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"fetch", "Ready", "True", "1", url}, strings.Fields(rows[1])[:5]); diff != "" {
		t.Errorf("what kubectl get shows (-want +got):\n%s", diff)
	}
	want := sets.New(
		"ServiceAccount fetch-proxy-runner", "Role fetch-proxy-runner", "RoleBinding fetch-proxy-runner",
		"ServiceAccount fetch-sa", "ConfigMap fetch-runconfig", "Deployment fetch", "Service mcp-fetch-proxy",
		"StatefulSet fetch", "Service mcp-fetch", "Service mcp-fetch-headless")
	if diff := cmp.Diff(sets.List(want), sets.List(s.ownedBy(srv))); diff != "" {
		t.Errorf("what the server owns (-want +got):\n%s", diff)
	}
	s.describes("fetch", "Phase: Ready", "Type: Ready", "WorkloadReady", "Normal")
	s.awaitHealthy(s.proxies("fetch")[0].Name)
}

// awaitHealthy waits until the process of a proxy pod answers its probes.
func (s *space) awaitHealthy(pod string) {
	s.t.Helper()
	name := s.key(pod)
	harness.Eventually(s.t, "proxy "+pod+" to answer", func() error {
		if _, err := s.pods.Process(name); err != nil {
			return err
		}
		answer, err := http.Get("http://" + s.pods.Host(name) + ":8080" + v1beta1.HealthPath)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

// kinds are those of which a server has children, or children of children.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.ReplicaSetList{}, &appsv1.ControllerRevisionList{},
		&corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	}
}

// objects calls see with every object of the namespace that is of one of the kinds,
// and does not belong to every namespace.
func (s *space) objects(see func(kind string, obj client.Object)) {
	s.t.Helper()
	for _, list := range kinds() {
		s.list(list, nil)
		items, err := meta.ExtractList(list)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, item := range items {
			obj, ok := item.(client.Object)
			if !ok {
				s.t.Fatalf("%T is no object", item)
			}
			kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
			if name := obj.GetName(); name != "default" && name != "kube-root-ca.crt" {
				see(kind, obj)
			}
		}
	}
}

// ownedBy is what has the server as its controller.
func (s *space) ownedBy(srv *v1beta1.MCPServer) sets.Set[string] {
	s.t.Helper()
	owned := sets.New[string]()
	s.objects(func(kind string, obj client.Object) {
		for _, ref := range obj.GetOwnerReferences() {
			if ref.UID == srv.UID && ptr.Deref(ref.Controller, false) {
				owned.Insert(kind + " " + obj.GetName())
			}
		}
	})
	return owned
}

// versions are the resourceVersions of everything in the namespace but servers.
func (s *space) versions() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	s.objects(func(kind string, obj client.Object) { out[kind+" "+obj.GetName()] = obj.GetResourceVersion() })
	return out
}

func TestImageChangeRollsOnce(t *testing.T) {
	t.Parallel()
	s := readySpace(t)
	before := s.workload("fetch")

	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Image = secondImage })
	srv := s.awaitPhase("fetch", "Ready")
	if got := s.imageOf("fetch"); got != secondImage {
		t.Errorf("the server is Ready with image %s, want %s", got, secondImage)
	}
	after := s.workload("fetch")
	if after.ReplicaSets != before.ReplicaSets+1 || after.Revisions != before.Revisions+1 {
		t.Errorf("pod templates changed more than once:\n%s", cmp.Diff(before, after))
	}
	s.assertReplaced("fetch", before)
	if generation := fmt.Sprint(srv.Generation); after.Proxy != generation || after.Backend != generation {
		t.Errorf("pod templates are of generation %s and %s, want %s", after.Proxy, after.Backend, generation)
	}
	s.describes("fetch", "RollingOut", "WorkloadReady")
}

// assertReplaced checks that none of the pods from before is there.
func (s *space) assertReplaced(name string, before workload) {
	s.t.Helper()
	old := sets.New(append(before.Proxies, before.Backends...)...)
	for _, pod := range append(s.proxies(name), s.backends(name)...) {
		if old.Has(pod.UID) {
			s.t.Errorf("pod %s was not replaced", pod.Name)
		}
	}
}

func TestScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why string
		// backends is spec.backendReplicas; nil leaves the count to others.
		backends *int32
		// scaled is what somebody scales the StatefulSet to; 0 for nobody.
		scaled int
		want   int32
	}{
		"in the spec":      {why: "the server says how many it wants", backends: ptr.To[int32](2), want: 2},
		"by somebody else": {why: "what an autoscaler or a person decided is restored", scaled: 3, want: 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.BackendReplicas = c.backends })
			s.awaitPhase("fetch", "Ready")
			if c.scaled > 0 {
				s.kubectl("scale", "statefulset", "fetch", fmt.Sprintf("--replicas=%d", c.scaled))
			}
			s.awaitBackends("fetch", c.want)

			s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Replicas = ptr.To[int32](0) })
			s.awaitPhase("fetch", "Stopped")
			s.awaitCondition("fetch", "Ready", "False", v1beta1.ReasonNotReady)
			s.awaitBackends("fetch", 0)
			s.describes("fetch", "Phase: Stopped", "ScaledToZero")

			s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Replicas = ptr.To[int32](1) })
			s.awaitPhase("fetch", "Ready")
			s.awaitBackends("fetch", c.want)
			s.describes("fetch", "ScaledUp", "WorkloadReady")
		})
	}
}

// awaitBackends waits until so many pods of the backend are there, and wanted.
func (s *space) awaitBackends(name string, want int32) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprintf("%d backends", want), func() error {
		sts := s.statefulSet(name)
		pods := len(s.backends(name))
		if ptr.Deref(sts.Spec.Replicas, 1) != want || pods != int(want) || sts.Status.ReadyReplicas != want {
			return fmt.Errorf("%d wanted, %d there, %d ready", ptr.Deref(sts.Spec.Replicas, 1), pods, sts.Status.ReadyReplicas)
		}
		return nil
	})
}
