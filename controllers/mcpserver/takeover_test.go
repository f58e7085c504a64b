package mcpserver

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// portsOf are those of the proxy's Service and of the proxy's container.
func portsOf(w *world) (ports []string) {
	for _, p := range get(w, &corev1.Service{}, "mcp-fetch-proxy").Spec.Ports {
		ports = append(ports, fmt.Sprintf("Service %s %d to %s", p.Name, p.Port, p.TargetPort.String()))
	}
	for _, p := range w.deployment().Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, fmt.Sprintf("container %s %d", p.Name, p.ContainerPort))
	}
	return ports
}

// Deployments that the peer made say nothing of a strategy, for which the API server fills in a rolling update; a server of its
// default transport has another. Ports are told apart by number: that of the peer stays the peer's beside another one of ours, and
// two of one name are refused.
func TestTakesOverWhatThePeerMade(t *testing.T) {
	for _, transport := range []string{v1beta1.TransportStdio, v1beta1.TransportSSE} {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, v1beta1.MCPServerSpec{Image: "example.org/fetch:1", Transport: transport})
			peers := w.peersObjects()
			for _, step := range []struct {
				why, spec string
				want      []string
			}{
				{"what is as the peer left it stays", `{"proxyPort":8080}`,
					[]string{"Service http 8080 to 8080", "Service debug 6060 to 6060", "container http 8080", "container debug 6060"}},
				{"the port of the peer goes", `{"proxyPort":9090}`,
					[]string{"Service http 9090 to 9090", "Service debug 6060 to 6060", "container http 9090", "container debug 6060"}},
				{"and so does the one that came instead", `{"proxyPort":9091}`,
					[]string{"Service http 9091 to 9091", "Service debug 6060 to 6060", "container http 9091", "container debug 6060"}},
			} {
				w.edit(w.srv, `{"spec":`+step.spec+`}`)
				w.ensure()
				sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
				if diff := cmp.Diff(step.want, portsOf(w), sorted); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", step.spec, step.why, diff)
				}
				now := w.deployment()
				if got, want := now.Spec.Strategy.Type, strategy(&w.srv.Spec).Type; got != want || now.UID != peers.UID {
					t.Errorf("strategy %s of Deployment %s, want %s of the same one (%s)", got, now.UID, want, peers.UID)
				}
				if again := w.ensure(); again != 0 {
					t.Errorf("%s: %d writes at the next look, want 0", step.spec, again)
				}
			}
		})
	}
}

// peersObjects makes a Deployment and a Service as the peer's operator does.
func (w *world) peersObjects() *appsv1.Deployment {
	w.Helper()
	labels := v1beta1.ProxyLabels(w.srv.Name)
	mine := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: w.srv.Namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{ownerReference(w.srv)}}
	}
	service := &corev1.Service{ObjectMeta: mine("mcp-fetch-proxy"), Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
		{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(8080)},
		{Name: "debug", Port: 6060}}}}
	deployment := &appsv1.Deployment{ObjectMeta: mine("fetch"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: v1beta1.ProxyContainer, Image: "example.org/peer:1", Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: 8080}, {Name: "debug", ContainerPort: 6060}}}}}}}}
	for _, made := range []client.Object{service, deployment} {
		if err := w.client.Create(w.Context(), made, client.FieldOwner("peer")); err != nil {
			w.Fatal(err)
		}
	}
	return deployment
}

// A port that nobody else has set needs no write of its own, with which a template of
// the Deployment would be rolled out that nobody wants.
func TestProxyPortIsChangedInOneWriteEach(t *testing.T) {
	w := newWorld(t, httpServer)
	w.ensure()
	w.edit(w.srv, `{"spec":{"proxyPort":9090}}`)
	before := w.deployment().Generation
	w.ensure()
	if got := w.deployment().Generation; got != before+1 {
		t.Errorf("the Deployment changed %d times, want once", got-before)
	}
	if diff := cmp.Diff([]string{"Service http 9090 to 9090", "container http 9090"}, portsOf(w)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// A StatefulSet without an owner outlives its MCPServer, and another one of the name counts its generations from 1: its proxies
// would take the StatefulSet for a newer proxy's until it has as many.
func TestStampOfAnotherServerIsTakenOff(t *testing.T) {
	const stamp = v1beta1.AnnotationGeneration
	for name, c := range map[string]struct {
		why, object, pods string
		change            func(*server, *appsv1.StatefulSet)
		want              [2]string
	}{
		"of one that is gone": {"no proxy of this one can bear it", "", "12", nil, [2]string{"", ""}},
		"on the object":       {"a proxy looks there, too", "12", "1", nil, [2]string{"", ""}},
		"of this one":         {"an older proxy must give way to the one that wrote it", "", "1", nil, [2]string{"", "1"}},
		"owned": {"a newer proxy of this one has been here", "", "12", func(srv *server, s *appsv1.StatefulSet) {
			s.OwnerReferences = []metav1.OwnerReference{ownerReference(srv)}
		}, [2]string{"", "12"}},
		"somebody's": {"a name proves nothing", "", "12", func(_ *server, s *appsv1.StatefulSet) {
			delete(s.Labels, v1beta1.LabelName)
		}, [2]string{"", "12"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpServer)
			err := theirSet(t.Context(), w.client, w.srv, "fetch", func(s *appsv1.StatefulSet) {
				s.Annotations, s.Spec.Template.Annotations = map[string]string{stamp: c.object}, map[string]string{stamp: c.pods}
				if c.change != nil {
					c.change(w.srv, s)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := do(t.Context(), w.client, w.srv, "EnsureWorkload"); err != nil && !isTaken(err) {
				t.Fatal(err)
			}
			set := get(w, &appsv1.StatefulSet{}, "fetch")
			if diff := cmp.Diff(c.want, [2]string{set.Annotations[stamp], set.Spec.Template.Annotations[stamp]}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
