package mcpserver_test

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// workload counts how often the two workloads of a server were changed: by the API
// server, in metadata.generation, and by their controllers, in revisions of the pod
// template. Stamps are the tokens on the templates.
type workload struct {
	ProxyGeneration, ProxyRevision     int64
	BackendGeneration, BackendRevision int64
	ProxyStamp, BackendStamp           string
}

func (w *world) workload(name string) workload {
	w.t.Helper()
	key := client.ObjectKey{Namespace: w.namespace, Name: name}
	proxy, backend := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	for _, obj := range []client.Object{proxy, backend} {
		if err := w.Client.Get(w.t.Context(), key, obj); err != nil {
			w.t.Fatal(err)
		}
	}
	var replicaSets appsv1.ReplicaSetList
	var revisions appsv1.ControllerRevisionList
	for _, list := range []client.ObjectList{&replicaSets, &revisions} {
		if err := w.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.t.Fatal(err)
		}
	}
	state := workload{
		ProxyGeneration: proxy.Generation, BackendGeneration: backend.Generation,
		ProxyStamp:   proxy.Spec.Template.Annotations[v1beta1.AnnotationRestartedAt],
		BackendStamp: backend.Spec.Template.Annotations[v1beta1.AnnotationRestartedAt],
	}
	// A template makes one ReplicaSet; the controllers keep ten old ones at most, so
	// the newest number counts, not how many there are.
	for _, rs := range replicaSets.Items {
		if metav1.IsControlledBy(&rs, proxy) {
			var n int64
			if _, err := fmt.Sscan(rs.Annotations["deployment.kubernetes.io/revision"], &n); err != nil {
				w.t.Fatalf("ReplicaSet %s: read its revision: %v", rs.Name, err)
			}
			state.ProxyRevision = max(state.ProxyRevision, n)
		}
	}
	for _, revision := range revisions.Items {
		if metav1.IsControlledBy(&revision, backend) {
			state.BackendRevision = max(state.BackendRevision, revision.Revision)
		}
	}
	return state
}

// once is what a workload is after one restart more.
func (s workload) once(token string) workload {
	return workload{s.ProxyGeneration + 1, s.ProxyRevision + 1, s.BackendGeneration + 1, s.BackendRevision + 1, token, token}
}

// children lists what is there of a server, as "Kind name".
func (w *world) children(name string) []string {
	w.t.Helper()
	var found []string
	for kind, list := range map[string]client.ObjectList{
		"Deployment": &appsv1.DeploymentList{}, "StatefulSet": &appsv1.StatefulSetList{}, "Service": &corev1.ServiceList{},
		"ConfigMap": &corev1.ConfigMapList{}, "ServiceAccount": &corev1.ServiceAccountList{},
		"Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{},
	} {
		if err := w.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.t.Fatal(err)
		}
		err := eachItem(list, func(obj client.Object) {
			if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "MCPServer" && owner.Name == name {
				found = append(found, kind+" "+obj.GetName())
			}
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	slices.Sort(found)
	return found
}

// allChildren is what a server has, each once.
func allChildren(name string) []string {
	all := []string{
		"Deployment " + name, "StatefulSet " + name,
		"Service " + v1beta1.ProxyServiceName(name), "Service " + v1beta1.BackendServiceName(name), "Service " + v1beta1.HeadlessServiceName(name),
		"ConfigMap " + v1beta1.RunConfigName(name),
		"ServiceAccount " + v1beta1.ProxyRBACName(name), "ServiceAccount " + v1beta1.BackendServiceAccountName(name),
		"Role " + v1beta1.ProxyRBACName(name), "RoleBinding " + v1beta1.ProxyRBACName(name),
	}
	slices.Sort(all)
	return all
}

// awaitNoPods waits until the controllers have taken the pods of a server away.
func (w *world) awaitNoPods(name string) {
	w.t.Helper()
	for _, labels := range []map[string]string{v1beta1.ProxyLabels(name), v1beta1.BackendSelector(name)} {
		harness.Eventually(w.t, "the pods of "+name+" to go", func() error {
			var pods corev1.PodList
			if err := w.Client.List(w.t.Context(), &pods, client.InNamespace(w.namespace), client.MatchingLabels(labels)); err != nil {
				return err
			}
			if n := len(pods.Items); n > 0 {
				return fmt.Errorf("%d are there", n)
			}
			return nil
		})
	}
}
