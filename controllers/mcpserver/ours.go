package mcpserver

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// controlled tells whether obj was made for srv. A name proves nothing: it may be
// taken by somebody else, or by a server that is gone.
func controlled(srv *server, obj metav1.Object) bool { return metav1.IsControlledBy(obj, srv) }

// ours is controlled for the objects of the backend, some of which the
// peer's proxy has made: a StatefulSet without an owner, and Services that the
// StatefulSet owns. They bear the server's labels.
func ours(srv *server, obj metav1.Object) bool {
	if controlled(srv, obj) {
		return true
	}
	controller := metav1.GetControllerOf(obj)
	free := controller == nil || controller.Kind == "StatefulSet" && controller.Name == srv.Name
	labels := obj.GetLabels()
	return free && labels[v1beta1.LabelName] == srv.Name && labels["app"] == srv.Name
}

// proxyPod tells whether the pod belongs to the Deployment of the server's name,
// through a ReplicaSet whose name the Deployment chose. Whether that Deployment is
// ours is not told here.
func proxyPod(srv *server, pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.Kind == "ReplicaSet" &&
		controller.Name == fmt.Sprintf("%s-%s", srv.Name, pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
}

// backendPod tells whether the pod belongs to the StatefulSet of the server's name,
// whosever that is.
func backendPod(srv *server, pod *corev1.Pod) bool { return ofBackend(srv, pod) }

func ofBackend(srv *server, obj metav1.Object) bool {
	controller := metav1.GetControllerOf(obj)
	return controller != nil && controller.Kind == "StatefulSet" && controller.Name == srv.Name
}
