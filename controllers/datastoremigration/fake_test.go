package datastoremigration

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// newFake builds a fake client whose scheme knows the kinds of both sides from the start: it would register each
// at its first request, while a step that looks at two things at once reads the scheme.
func newFake() *fake.ClientBuilder {
	scheme := NewScheme()
	for _, kind := range resources.Default().All() {
		for _, gvk := range []schema.GroupVersionKind{kind.V1GVK(), kind.V3GVK()} {
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
		}
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} } // as any API server selects
	return fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&migration{}, "metadata.name", byName).WithIndex(&v1alpha1.MachineState{}, "metadata.name", byName)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// v3Service is the APIService of v3: the API server itself serves the CRDs, or another one behind this Service does.
func v3Service(behind string) *apiregistrationv1.APIService {
	svc := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName},
		Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: resources.V3Version}}
	if behind != "" {
		svc.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "calico-apiserver", Name: behind}
	}
	return svc
}

// newReconciler runs the shipped machine.
func newReconciler(t *testing.T, cl client.Client) *runner.Reconciler[*migration] {
	t.Helper()
	machine := shippedMachine(t)
	return &runner.Reconciler[*migration]{Client: cl, Machine: func() *fsm.Machine { return machine }, Clock: clock.RealClock{},
		Program:  Program(cl, Settings{Registry: resources.Default(), CalicoNamespace: "calico-system", Discovery: nothingServed()}),
		Recorder: events.NewFakeRecorder(100), Metrics: runner.NewMetrics(prometheus.NewRegistry())}
}

// once runs a step of the shipped machine.
func once(t *testing.T, cl client.Client, dm *migration, action string, with fsm.Params) (outputs, error) {
	t.Helper()
	return runner.Once(t.Context(), cl, dm, actionOn(cl, action), with, clock.RealClock{})
}
