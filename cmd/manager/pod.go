package main

import (
	"context"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
)

// ownPod is the pod that the process is in; empty where it is in none, or in one that does not know its name.
func ownPod() types.NamespacedName {
	own := types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")} // by the downward API, where the chart asks for it
	if own.Name == "" || own.Namespace == "" {
		return types.NamespacedName{}
	}
	return own
}

// tellOwnPod adds the teller of refused machine files, if the process is in a pod
// that knows its name.
func tellOwnPod(mgr manager.Manager, cfg *rest.Config, store *machinestore.Store) error {
	own := ownPod()
	if own.Name == "" {
		return nil
	}
	pod := corev1.Pod{}
	pod.Name, pod.Namespace = own.Name, own.Namespace
	client, err := authenticationclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return mgr.Add(&runner.PodEventSource{Store: store, Recorder: mgr.GetEventRecorder("phasegate-manager"),
		Pod: func(ctx context.Context) *corev1.Pod {
			found := pod
			found.UID = ownUID(ctx, client, pod.Name)
			return &found
		}})
}

// ownUID is asked of the API server, which everybody may: `kubectl describe pod`
// shows only Events that bear it, and reading the pod would take a right.
func ownUID(ctx context.Context, client authenticationclient.SelfSubjectReviewsGetter, name string) (uid types.UID) {
	me, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		log.FromContext(ctx).Info("kubectl describe pod does not show this pod's Events", "error", err.Error())
		return ""
	}
	extra := me.Status.UserInfo.Extra // of a token that is bound to a pod
	if names, uids := extra["authentication.kubernetes.io/pod-name"], extra["authentication.kubernetes.io/pod-uid"]; len(names) == 1 && names[0] == name && len(uids) == 1 {
		uid = types.UID(uids[0])
	}
	return uid
}
