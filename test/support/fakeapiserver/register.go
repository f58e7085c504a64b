package fakeapiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/phasegate/phasegate/resources"
)

// APIServiceName is the object that decides who serves projectcalico.org/v3.
const APIServiceName = resources.V3Version + "." + resources.V3Group

const (
	availableWithin = time.Minute
	pollEvery       = 100 * time.Millisecond
)

// Register makes kube-apiserver send projectcalico.org/v3 to the stand-in that listens on port of this
// machine and presents a certificate of caBundle, and waits until the APIService is Available. An
// APIService that Kubernetes made for v3 CRDs is taken over. It may be called again.
//
// The Service is of type ExternalName because there is no pod network: kube-apiserver resolves it to
// localhost and adds the APIService's port.
func Register(ctx context.Context, cfg *rest.Config, port int32, caBundle []byte) error {
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for the Service: %w", err)
	}
	apis, err := aggregator.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for the APIService: %w", err)
	}
	if err := ensureService(ctx, core); err != nil {
		return err
	}
	if err := ensureAPIService(ctx, apis, port, caBundle); err != nil {
		return err
	}
	return waitAvailable(ctx, apis)
}

func ensureService(ctx context.Context, core kubernetes.Interface) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", Namespace, err)
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ServiceName, Namespace: Namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := core.CoreV1().Services(Namespace).Create(ctx, svc, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create service %s/%s: %w", Namespace, ServiceName, err)
	}
	return nil
}

// ensureAPIService writes the whole object at once: without the label automanaged in the same write,
// kube-apiserver would put its own back.
func ensureAPIService(ctx context.Context, apis aggregator.Interface, port int32, caBundle []byte) error {
	want := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: APIServiceName, Labels: map[string]string{"app": ServiceName}},
		Spec: apiregistrationv1.APIServiceSpec{
			Service: &apiregistrationv1.ServiceReference{Namespace: Namespace, Name: ServiceName, Port: &port},
			Group:   resources.V3Group, Version: resources.V3Version, CABundle: caBundle,
			GroupPriorityMinimum: 1500, VersionPriority: 200,
		},
	}
	client := apis.ApiregistrationV1().APIServices()
	err := retry.OnError(retry.DefaultRetry, func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}, func() error {
		current, err := client.Get(ctx, APIServiceName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		current.Labels, current.Spec = want.Labels, want.Spec
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write APIService %s: %w", APIServiceName, err)
	}
	return nil
}

func waitAvailable(ctx context.Context, apis aggregator.Interface) error {
	last := "no condition yet"
	err := wait.PollUntilContextTimeout(ctx, pollEvery, availableWithin, true, func(ctx context.Context) (bool, error) {
		svc, err := apis.ApiregistrationV1().APIServices().Get(ctx, APIServiceName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range svc.Status.Conditions {
			if c.Type == apiregistrationv1.Available {
				last = c.Reason + ": " + c.Message
				return c.Status == apiregistrationv1.ConditionTrue && c.Reason == "Passed", nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until APIService %s is Available (%s): %w", APIServiceName, last, err)
	}
	return nil
}
