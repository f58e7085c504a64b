package datastoremigration

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// before says what earlier steps have left for the one that is tried.
type before struct {
	v1, v3 *bool
	// disabled: the APIService is saved with the state and serves from CRDs; else it is the
	// aggregated one.
	disabled bool
	// saved replaces what is saved of it with the state.
	saved *string
	crds  []string
}

// build makes the whole world anew: its objects have names that Calico chose.
func (b before) build(ctx context.Context, c client.Client, n int) (*migration, error) {
	registry := resources.Default()
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("migration-%d", n), UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n))}}
	svc := v3Service("calico-api")
	svc.Labels, svc.Spec.GroupPriorityMinimum, svc.Spec.VersionPriority = map[string]string{"a": "b"}, 1500, 200
	note := ""
	if b.disabled {
		note, _ = saveAPIService(svc) // a plain value
		svc.Spec.Service, svc.Annotations = nil, map[string]string{migrationv1.AnnotationSavedAPIService: note, migrationv1.AnnotationLockedBy: string(dm.UID)}
	}
	if b.saved != nil {
		note = *b.saved
	}
	objs := []client.Object{dm, svc}
	if note != "" {
		objs = append(objs, onceState(dm.UID, savedAPIServiceKey, note))
	}
	for gvk, ready := range map[schema.GroupVersionKind]*bool{registry.Lock().V1GVK(): b.v1, registry.Lock().V3GVK(): b.v3} {
		info := &unstructured.Unstructured{Object: map[string]any{}}
		info.SetGroupVersionKind(gvk)
		info.SetName(clusterInformationName)
		if err := client.IgnoreNotFound(c.Delete(ctx, info)); err != nil {
			return nil, err
		}
		if ready == nil {
			continue
		}
		if !*ready {
			info.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: string(dm.UID), migrationv1.AnnotationMigratedBy: string(dm.UID)})
		}
		info.Object["spec"] = map[string]any{"clusterGUID": "g", "datastoreReady": *ready}
		objs = append(objs, info)
	}
	for _, name := range b.crds {
		objs = append(objs, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, obj := range objs {
		if err := client.IgnoreNotFound(c.Delete(ctx, obj)); err != nil {
			return nil, err
		}
		obj.SetResourceVersion("")
		if err := c.Create(ctx, obj); err != nil {
			return nil, err
		}
	}
	return dm, nil
}

// The steps that lock, park and clean up, twice, and with a crash before and after
// each of their writes.
func TestStepsAreIdempotent(t *testing.T) {
	open, closed := true, false
	lost, garbled := "", "{"
	cases := map[string]struct {
		action string
		before before
		with   fsm.Params
		clock  clock.WithTickerAndDelayedExecution // nil: the kit's own, which stands still
		writes []string
	}{
		"lock v1": {action: "LockV1", before: before{v1: &open}, writes: []string{"patch ClusterInformation", "patch status of DatastoreMigration"}},
		"lock v1 for a while": {action: "LockV1", before: before{v1: &open}, with: fsm.Params{"deadline": "30m"},
			writes: []string{"create MachineState", "patch ClusterInformation", "patch status of DatastoreMigration"}},
		"unlock v1":           {action: "UnlockV1", before: before{v1: &closed}, writes: []string{"patch ClusterInformation"}},
		"lock v3, created":    {action: "LockV3", before: before{v1: &closed, disabled: true}, writes: []string{"create ClusterInformation"}},
		"lock v3, there":      {action: "LockV3", before: before{v1: &closed, v3: &open, disabled: true}, writes: []string{"patch ClusterInformation"}},
		"unlock v3, deleted":  {action: "UnlockV3", before: before{v3: &closed, disabled: true}, writes: []string{"delete ClusterInformation"}},
		"unlock v3, kept":     {action: "UnlockV3", before: before{v3: &closed, disabled: true}, with: fsm.Params{"created": "keep"}, writes: []string{"patch ClusterInformation"}},
		"park the APIService": {action: "DisableAPIService", writes: []string{"create MachineState", "patch APIService"}},
		"restore it":          {action: "RestoreAPIService", before: before{disabled: true}, writes: []string{"patch APIService", "patch MachineState"}},
		"restore it, where somebody has removed our note": {action: "RestoreAPIService", before: before{disabled: true, saved: &lost},
			writes: []string{"patch APIService"}},
		"restore it, where somebody has edited our note": {action: "RestoreAPIService", before: before{disabled: true, saved: &garbled},
			writes: []string{"patch APIService", "patch MachineState"}},
		"forget it":               {action: "DeleteDisabledAPIService", before: before{disabled: true}, writes: []string{"delete APIService", "patch MachineState"}},
		"forget the v3 lock":      {action: "RemoveMigrationAnnotations", before: before{v3: &closed}, writes: []string{"patch ClusterInformation"}},
		"nothing of it to forget": {action: "RemoveMigrationAnnotations", before: before{v3: &open}},
		"delete CRDs of v1": {action: "DeleteV1CRDs", clock: clock.RealClock{}, before: before{disabled: true, crds: []string{"ippools.crd.projectcalico.org", "tiers.crd.projectcalico.org"}},
			writes: []string{"delete CustomResourceDefinition", "delete CustomResourceDefinition", "patch status of DatastoreMigration"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which the step that waits between deletions does so at once
				n := 0
				covered := runnertest.Idempotent(t, runnertest.Case[*migration]{
					Client: allMayBeDone(newFake().WithStatusSubresource(&migration{}).Build()),
					Setup: func(ctx context.Context, cl client.Client) (*migration, error) {
						n++
						return c.before.build(ctx, cl, n)
					},
					Action:   func(cl client.Client) runner.Action[*migration] { return actionOn(cl, c.action) },
					With:     func(*migration) fsm.Params { return c.with },
					Progress: []string{"status.message"},
					Clock:    c.clock,
				})
				if diff := cmp.Diff(c.writes, covered.Writes); diff != "" {
					t.Errorf("writes of the undisturbed run (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// onceState is the state that runner.Once finds of an object.
func onceState(uid types.UID, key, text string) *v1alpha1.MachineState {
	state := &v1alpha1.MachineState{}
	state.Name = v1alpha1.MachineStateName("once", uid)
	state.Status.Saved = map[string]v1alpha1.SavedText{key: v1alpha1.SavedText(text)}
	return state
}

// actionOn is an action of the program, in a cluster of which discovery tells nothing.
func actionOn(c client.Client, name string) runner.Action[*migration] {
	return underShipped(Program(c, Settings{Registry: resources.Default(), CalicoNamespace: "calico-system", Discovery: nothingServed()}).Actions[name])
}

// underShipped is an action as the shipped machine calls it: runner.Once has none.
func underShipped(a runner.Action[*migration]) runner.Action[*migration] {
	do := a.Do
	a.Do = func(ctx context.Context, sc *scope) (outputs, error) {
		files, err := bound()
		if err != nil {
			return nil, err
		}
		sc.Machine = files["shipped"]
		return do(ctx, sc)
	}
	return a
}

// nothingServed knows no kind but those of the registry.
func nothingServed() *discoveryfake.FakeDiscovery {
	v1 := &metav1.APIResourceList{GroupVersion: resources.V1Group + "/" + resources.V1Version}
	for _, kind := range resources.Default().All() {
		v1.APIResources = append(v1.APIResources, metav1.APIResource{Name: kind.V1Plural(), Kind: kind.V1Kind(), Namespaced: kind.Namespaced(), Verbs: metav1.Verbs{"list"}})
	}
	return &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{v1}}}
}

// allMayBeDone answers questions about rights, which the fake client takes for objects.
func allMayBeDone(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed = true
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
	})
}
