package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
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
		why      string
		action   string
		dm       func(*migration)
		saved    bool
		disabled bool // afterwards
		says     string
	}{
		"before v3 is served":    {why: "nothing else in the locked window would park it", action: "AwaitV3Served", dm: held, disabled: true, says: "points to a server again; pointing it to the CRDs"},
		"never disabled":         {why: "a machine that has not disabled it has no way to release it", action: "AwaitV3Served", dm: func(*migration) {}, says: "does not point to the CRDs yet"},
		"while objects copied":   {why: "v3 shows v1, and a copy would look as if it were there", action: "CopyResources", dm: locked, disabled: true, says: "points to a server again"},
		"while a conflict waits": {why: "v1 is no conflict with itself, and the wait would end without a decision", action: DetectAction, dm: locked, disabled: true, says: "points to a server again"},
		"while verified":         {why: "v1 would be compared with itself", action: "Verify", dm: locked, disabled: true, says: "points to a server again"},
		"before v3 is opened":    {why: "v1 is closed for good: without v3 nothing is open", action: "UnlockV3", dm: kept, saved: true, disabled: true, says: "points to a server again"},
		"while rolled out":       {why: "components ask v1 through v3", action: "ObserveRollout", dm: func(*migration) {}, says: "APIService v3.projectcalico.org (points to a server again"},
		"before the clean-up":    {why: "that server would show nothing once v1 is gone", action: CleanUpAction, dm: func(*migration) {}, says: "so nothing of v1 is deleted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: waiveV1Changed + "@u"}}}
			c.dm(dm)
			svc := v3Service("calico-api")
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd"}}
			cl := allMayBeDone(newFake().WithStatusSubresource(dm).WithObjects(dm, svc, crd, lockObject(false)).Build())
			if c.saved {
				must(t, cl.Create(t.Context(), onceState(dm.UID, savedAPIServiceKey, "{}")))
			}
			out, err := once(t, cl, dm, c.action, nil)
			if said := fmt.Sprint(out, err); !strings.Contains(said, c.says) {
				t.Errorf("it says %s, want %q: %s", said, c.says, c.why)
			}
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(svc), svc))
			if isAggregated(svc) == c.disabled {
				t.Errorf("it points to a server: %t: %s", !c.disabled, c.why)
			}
			if err := cl.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				t.Errorf("the CRD of v1: %v", err)
			}
		})
	}
}

// An operator and GitOps merge metadata: what they point to a server again keeps our marks until we write it, or
// kube-apiserver turns it back, which it does for the label. None of them may come back with the APIService.
func TestAnAPIServiceThatComesBackWithOurMarks(t *testing.T) {
	was := v3Service("calico-api")
	was.Labels, was.Annotations = map[string]string{"app": "calico"}, map[string]string{"by": "helm"}
	saved, err := saveAPIService(was)
	must(t, err)
	marks := map[string]string{migrationv1.AnnotationSavedAPIService: saved, migrationv1.AnnotationLockedBy: "u"}
	type side struct {
		Saved               string // with the state
		Labels, Annotations map[string]string
		Spec                apiregistrationv1.APIServiceSpec
	}
	cases := map[string]struct {
		why    string
		action string // of the machine; none: by hand, without a manager
		want   side
	}{
		"it is disabled again": {why: "what is saved replaces the good copy", action: "AwaitV3Served", want: side{Saved: saved,
			Labels: map[string]string{automanagedLabel: "true"}, Annotations: marks,
			Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: resources.V3Version, GroupPriorityMinimum: crdGroupPriority, VersionPriority: crdVersionPriority}}},
		"it is restored": {why: "kube-apiserver would let the CRDs serve v3 after an abort", action: "RestoreAPIService",
			want: side{Labels: was.Labels, Annotations: was.Annotations, Spec: was.Spec}},
		"it is restored by hand": {why: "the same; the state is the manager's", want: side{Saved: saved, Labels: was.Labels, Annotations: was.Annotations, Spec: was.Spec}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			svc, state := was.DeepCopy(), onceState(dm.UID, savedAPIServiceKey, saved)
			svc.Labels[automanagedLabel] = "true"
			maps.Copy(svc.Annotations, marks)
			lock := lockObject(false)
			lock.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: "u"})
			cl := newFake().WithStatusSubresource(dm).WithObjects(dm, svc, state, lock).Build()
			if c.action == "" {
				glass := NewBreakGlass(cl, resources.Default(), shippedMachine(t))
				locks, err := glass.Look(t.Context())
				must(t, err)
				if !locks.SavedAPIService {
					t.Errorf("nothing is to be restored: %s", c.why)
				}
				must(t, glass.Do(t.Context(), OpenAPIService))
			} else if _, err := once(t, cl, dm, c.action, nil); err != nil && !isWait(err) {
				t.Error(err)
			}
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(svc), svc))
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(state), state))
			got := side{Saved: string(state.Status.Saved[savedAPIServiceKey]), Labels: svc.Labels, Annotations: svc.Annotations, Spec: svc.Spec}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got): %s\n%s", c.why, diff)
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
	_, err := once(t, allMayBeDone(during), dm, "Verify", nil)
	if terminal, is := errors.AsType[*fsm.TerminalError](err); !is || terminal.Reason != "LockBroken" {
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

// What a migration or an APIService brings along from another cluster, or from git, is no record of this migration.
func TestTheAPIServiceOfAnotherMigration(t *testing.T) {
	saved, err := saveAPIService(v3Service("mine"))
	must(t, err)
	cases := map[string]struct {
		why       string
		migration string    // what the migration itself bears
		absent    bool      // there is no APIService
		service   string    // what the APIService bears
		by        types.UID // whose it is said to be
		restored  bool
	}{
		"on the migration":                    {why: "who may create migrations may not create APIServices", migration: saved},
		"on the migration, without a service": {why: "nor point v3 to nowhere", migration: saved, absent: true},
		"of another migration":                {why: "another cluster has another server, if any", service: saved, by: "other"},
		"of nobody":                           {why: "a note that does not say whose it is may be anybody's", service: saved},
		"of this migration":                   {why: "its state was lost", service: saved, by: "u", restored: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			if c.migration != "" {
				dm.Annotations = map[string]string{migrationv1.AnnotationSavedAPIService: c.migration}
			}
			cl := newFake().WithStatusSubresource(dm).WithObjects(dm).Build()
			if !c.absent {
				crds := v3Service("")
				if c.service != "" {
					crds.Annotations = map[string]string{migrationv1.AnnotationSavedAPIService: c.service, migrationv1.AnnotationLockedBy: string(c.by)}
				}
				must(t, cl.Create(t.Context(), crds))
			}
			_, err := once(t, cl, dm, "RestoreAPIService", nil)
			must(t, err)
			all := &apiregistrationv1.APIServiceList{}
			must(t, cl.List(t.Context(), all))
			if restored := len(all.Items) > 0 && isAggregated(&all.Items[0]); restored != c.restored || len(all.Items) > 0 && c.absent {
				t.Errorf("the APIServices are %v: %s", all.Items, c.why)
			}
		})
	}
}

// A MachineState that a restore brought into a cluster in which its migration has not disabled anything tells of
// another APIService: v3 would point to a server that is not there.
func TestAStateFromElsewhereParksNothing(t *testing.T) {
	saved, err := saveAPIService(v3Service("calico-api"))
	must(t, err)
	cases := map[string]struct {
		why            string
		disabledBy     string // the mark on the APIService
		v1LockedBy     string
		wantAggregated bool
	}{
		"nothing of its":        {why: "the cluster has been migrated since"},
		"another migration's":   {why: "that one releases itself", disabledBy: "other", v1LockedBy: "other"},
		"disabled by it":        {why: "its finalizer was removed by hand", disabledBy: "u", wantAggregated: true},
		"v1 is locked by it":    {why: "kube-apiserver has made the APIService anew, without the mark", v1LockedBy: "u", wantAggregated: true},
		"locked and marked too": {why: "as it was left", disabledBy: "u", v1LockedBy: "u", wantAggregated: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state := &v1alpha1.MachineState{Spec: v1alpha1.MachineStateSpec{Machine: MachineName, Object: v1alpha1.ObjectReference{
				APIVersion: migrationv1.GroupVersion.String(), Kind: "DatastoreMigration", Name: "to-v3", UID: "u"}}}
			state.Name = v1alpha1.MachineStateName(MachineName, "u")
			state.Labels = map[string]string{v1alpha1.MachineLabel: MachineName}
			state.Status.Phase, state.Status.Held = "Migrating", v1alpha1.Held("apiService")
			state.Status.Saved = map[string]v1alpha1.SavedText{savedAPIServiceKey: v1alpha1.SavedText(saved)}
			crds := v3Service("")
			if c.disabledBy != "" {
				crds.Annotations = map[string]string{migrationv1.AnnotationLockedBy: c.disabledBy}
			}
			lock := lockObject(false)
			lock.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: c.v1LockedBy})
			cl := newFake().WithObjects(state, crds, lock).Build()
			r := newReconciler(t, cl)
			r.States = runnertest.States(cl, MachineName)
			for range 10 {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "to-v3"}})
				must(t, err)
			}
			if err := cl.Get(t.Context(), client.ObjectKeyFromObject(state), state); !apierrs.IsNotFound(err) {
				t.Errorf("the state: %v, held %v", err, state.Status.Held)
			}
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(crds), crds))
			if isAggregated(crds) != c.wantAggregated {
				t.Errorf("v3 points to a server: %t: %s", isAggregated(crds), c.why)
			}
		})
	}
}
