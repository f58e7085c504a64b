package mcpserver

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

func TestDeleteChildrenLeavesWhatIsNotOurs(t *testing.T) {
	w := newWorld(t, httpServer)
	c, ctx, srv, namespace := w.client, t.Context(), w.srv, w.srv.Namespace
	service := func(name string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: owners},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	controller := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}
	}
	peers := map[string]string{v1beta1.LabelName: "fetch", "app": "fetch"}
	cases := map[string]struct {
		why  string
		obj  *corev1.Service
		part string
		gone bool
	}{
		"ours":                     {"made for this very server", service("mcp-fetch", nil, controller("MCPServer", "fetch", srv.UID)), partBackend, true},
		"of an earlier server":     {"the same name, another object", service("mcp-fetch", nil, controller("MCPServer", "fetch", "earlier")), partBackend, false},
		"by hand":                  {"nothing says that it is ours", service("mcp-fetch", nil), partBackend, false},
		"of the peer":              {"its proxy gives no owner, and nobody else would remove it", service("mcp-fetch", peers), partBackend, true},
		"of the peer's set":        {"its proxy lets the StatefulSet own Services", service("mcp-fetch-headless", peers, controller("StatefulSet", "fetch", "set")), partBackend, true},
		"with copied labels":       {"labels do not make up for another controller", service("mcp-fetch", peers, controller("MCPServer", "other", "other")), partBackend, false},
		"labels, part rest":        {"the peer's operator gives owners, so labels prove nothing there", service("mcp-fetch-proxy", peers), partRest, false},
		"ours, but another's part": {"the parts go one after the other", service("mcp-fetch-proxy", nil, controller("MCPServer", "fetch", srv.UID)), partBackend, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.Create(ctx, test.obj); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(ctx), test.obj) })
			got, err := runner.Once(ctx, c, srv.DeepCopy(), actionOf(own, "DeleteChildren")(c), fsm.Params{"part": test.part}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(outputs{"remaining": []string{}}, got); diff != "" {
				t.Errorf("waited for (-want +got):\n%s", diff)
			}
			if gone := apierrs.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(test.obj), &corev1.Service{})); gone != test.gone {
				t.Errorf("gone is %t: %s", gone, test.why)
			}
		})
	}
}

func TestRemainingSaysWhatBlocks(t *testing.T) {
	c := shared.Cluster(t).Client
	ctx := t.Context()
	srv, err := newWorkload(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := newPods(ctx, c, srv); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []struct {
		obj  client.Object
		body string
	}{
		{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fetch-0"}}, `{"metadata":{"finalizers":["example.org/stuck"]}}`},
		{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "mcp-fetch"}}, `{"metadata":{"finalizers":["example.org/a","example.org/b"]}}`},
	} {
		patch.obj.SetNamespace(srv.Namespace)
		if err := c.Patch(ctx, patch.obj, client.RawPatch(types.MergePatchType, []byte(patch.body))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := runner.Once(ctx, c, srv.DeepCopy(), actionOf(own, "DeleteChildren")(c), fsm.Params{"part": partBackend}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Without a garbage collector, the StatefulSet waits for its pods for ever.
	want := outputs{"remaining": []string{"StatefulSet/fetch", "Service/mcp-fetch (finalizers example.org/a example.org/b)", "Pod/fetch-0 (finalizers example.org/stuck) and fetch-1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
	if missing := sets.New("fetch-0", "fetch-1").Difference(sets.New(podNames(t, c, srv.Namespace)...)); len(missing) > 0 {
		t.Errorf("pods %v were deleted: that is the garbage collector's, after their owner was", missing)
	}
}

// An application may have a StatefulSet or a Deployment of the server's name, whose
// pods look like the server's: by label, and by the name of their controller.
func TestPodsOfAStrangerAreNotWaitedFor(t *testing.T) {
	labels := func(part string) map[string]string {
		if part == partBackend {
			return v1beta1.BackendSelector("fetch")
		}
		return v1beta1.ProxyLabels("fetch")
	}
	meta := func(part string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "fetch", Labels: labels(part), OwnerReferences: owners}
	}
	template := func(part string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(part)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	set := func(owners ...metav1.OwnerReference) client.Object {
		return &appsv1.StatefulSet{ObjectMeta: meta(partBackend, owners...), Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels(partBackend)}, Template: template(partBackend)}}
	}
	deployment := func(owners ...metav1.OwnerReference) client.Object {
		return &appsv1.Deployment{ObjectMeta: meta(partProxy, owners...), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels(partProxy)}, Template: template(partProxy)}}
	}
	another := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "App", Name: "shop", UID: "shop", Controller: new(true)}
	cases := map[string]struct {
		why   string
		part  string
		owner client.Object
		want  []string
	}{
		"StatefulSet by hand":     {"labels of the pods alone make nothing ours", partBackend, set(), []string{}},
		"StatefulSet of an app":   {"it has another controller", partBackend, set(another), []string{}},
		"Deployment by hand":      {"the peer's operator gives owners, so one without is a stranger's", partProxy, deployment(), []string{}},
		"Deployment of an app":    {"it has another controller", partProxy, deployment(another), []string{}},
		"the StatefulSet is gone": {"somebody deleted it before its pods", partBackend, nil, []string{"Pod/fetch-0 and fetch-1"}},
		"the Deployment is gone":  {"somebody deleted it before its pods", partProxy, nil, []string{"Pod/fetch-abc-new and fetch-abc-old"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpServer)
			if test.owner != nil {
				test.owner.SetNamespace(w.srv.Namespace)
				if err := w.client.Create(t.Context(), test.owner); err != nil {
					t.Fatal(err)
				}
			}
			if err := newPods(t.Context(), w.client, w.srv); err != nil {
				t.Fatal(err)
			}
			got, err := runner.Once(t.Context(), w.client, w.srv.DeepCopy(), actionOf(own, "DeleteChildren")(w.client), fsm.Params{"part": test.part}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(outputs{"remaining": test.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}
