package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// An operator, or GitOps, may point the APIService to its server again at any moment. What
// is behind the lock points it back; what comes after says so and deletes nothing.
func TestTheAPIServiceComesBack(t *testing.T) {
	held := func(dm *migration) { dm.Status.Machine.Held = v1alpha1.Held("v1Lock", "apiService") }
	kept := func(*migration) {}
	locked := func(dm *migration) {
		held(dm)
		dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockCooperative}
	}
	cases := map[string]struct {
		why    string
		action string
		dm     func(*migration)
		saved  bool
		parked bool // afterwards
		says   string
	}{
		"before v3 is served":    {why: "nothing else in the locked window would park it", action: "AwaitV3Served", dm: held, parked: true, says: "points to a server again; pointing it to the CRDs"},
		"never parked":           {why: "a machine that has not parked it has no way to release it", action: "AwaitV3Served", dm: func(*migration) {}, says: "does not point to the CRDs yet"},
		"while objects copied":   {why: "v3 shows v1, and a copy would look as if it were there", action: "CopyResources", dm: locked, parked: true, says: "points to a server again"},
		"while a conflict waits": {why: "v1 is no conflict with itself, and the wait would end without a decision", action: DetectAction, dm: locked, parked: true, says: "points to a server again"},
		"while verified":         {why: "v1 would be compared with itself", action: "Verify", dm: locked, parked: true, says: "points to a server again"},
		"before v3 is opened":    {why: "v1 is closed for good: without v3 nothing is open", action: "UnlockV3", dm: kept, saved: true, parked: true, says: "points to a server again"},
		"while rolled out":       {why: "components ask v1 through v3", action: "ObserveRollout", dm: func(*migration) {}, says: "APIService v3.projectcalico.org (points to a server again"},
		"before the clean-up":    {why: "that server would show nothing once v1 is gone", action: CleanUpAction, dm: func(*migration) {}, says: "so nothing of v1 is deleted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: waiveV1Changed + "@u"}}}
			c.dm(dm)
			svc := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName},
				Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: "v3", Service: &apiregistrationv1.ServiceReference{Namespace: "calico-apiserver", Name: "calico-api"}}}
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd"}}
			cl := allMayBeDone(newFake().WithStatusSubresource(dm).WithObjects(dm, svc, crd, lockObject(false)).Build())
			if c.saved {
				must(t, cl.Create(t.Context(), onceState(dm.UID, savedAPIServiceKey, "{}")))
			}
			action := actionOn(cl, c.action)
			out, err := runner.Once(t.Context(), cl, dm, action, nil, clock.RealClock{})
			if said := fmt.Sprint(out, err); !strings.Contains(said, c.says) {
				t.Errorf("it says %s, want %q: %s", said, c.says, c.why)
			}
			if err := cl.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
				t.Fatal(err)
			}
			if isAggregated(svc) == c.parked {
				t.Errorf("it points to a server: %t: %s", !c.parked, c.why)
			}
			if err := cl.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				t.Errorf("the CRD of v1: %v", err)
			}
		})
	}
}

// Whoever opens v1 while both sides are compared may have written what was read already.
func TestALockThatIsOpenedDuringVerify(t *testing.T) {
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
	dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockCooperative}
	var opened sync.Once // kinds are listed side by side
	cl := newFake().WithStatusSubresource(dm).WithObjects(dm, lockObject(false)).Build()
	during := interceptor.NewClient(cl, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			opened.Do(func() { err = errors.Join(err, c.Delete(ctx, lockObject(false)), c.Create(ctx, lockObject(true))) })
			return err
		},
	})
	action := actionOn(allMayBeDone(during), "Verify")
	_, err := runner.Once(t.Context(), during, dm, action, nil, clock.RealClock{})
	var terminal *fsm.TerminalError
	if !errors.As(err, &terminal) || terminal.Reason != "LockBroken" {
		t.Errorf("it says %v, want LockBroken", err)
	}
}

// lockObject is v1's ClusterInformation.
func lockObject(ready bool) *unstructured.Unstructured {
	info := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"datastoreReady": ready}}}
	info.SetGroupVersionKind(resources.Default().Lock().V1GVK())
	info.SetName(clusterInformationName)
	return info
}
