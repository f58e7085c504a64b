// Package crdgate runs a controller, and starts it anew when its CRD comes, goes, or serves other versions: it is told
// whether the objects can be watched, and is never there twice.
//
// It knows nothing of what the controller does, and it does not judge a CRD
// beyond its Established condition and the versions that it serves.
//
// # No second copy, by construction
//
// One goroutine (loop.serve) owns everything there is to know about the copy of
// the controller, and a new copy can only be begun in the state that the end of
// the old one leads to. The watch tells this goroutine nothing but "look again":
// what to do is decided from the newest state, so lost or merged events
// (a CRD deleted and created within a moment) cannot mislead it.
package crdgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/rbac"
)

// Gate ties a controller to a CRD, which is found by its name or by its kind. It
// needs to list and watch CustomResourceDefinitions: the one named CRDName, or all.
type Gate struct {
	// CRDName is the CRD's full name, "<plural>.<group>".
	CRDName string
	// Kind is for those who do not know the plural; all CRDs are looked through then.
	Kind schema.GroupKind
	// Config reaches the API server whose CRD is watched.
	Config *rest.Config
	// Run is the controller; missing is nil where the objects can be watched, else it says why not. It blocks until its context
	// is done and has freed everything it used when it returns (RunController does). It is called once
	// for each life of the CRD and for the time without it, and again, after a pause that grows from 1 s to
	// 1 min, whenever it returned without having been told to.
	Run func(ctx context.Context, missing *Missing) error
	// Version is the one that Run needs, asked each time; nil is any.
	Version func() string

	// seen is nil until Start has looked for the CRD.
	seen atomic.Pointer[sight]
}

// Start watches the CRD and runs the controller until ctx is done, then waits
// for the controller to end. The error is about a Gate that was not filled in
// properly; an API server that cannot be reached is waited for. It may be called
// again after it has returned.
func (g *Gate) Start(ctx context.Context) error {
	if (g.CRDName == "") == g.Kind.Empty() || g.Config == nil || g.Run == nil {
		return errors.New("crdgate: Config, Run, and one of CRDName and Kind are needed: fill in the Gate")
	}
	crds, err := clientset.NewForConfig(g.Config)
	if err != nil {
		return fmt.Errorf("crdgate %s: make a client for CRDs: %w", g.name(), err)
	}

	logger := log.FromContext(ctx).WithName("crdgate").WithValues("crd", g.name())
	only := fields.Everything()
	if g.CRDName != "" {
		only = fields.OneTermEqualSelector(metav1.ObjectNameField, g.CRDName)
	}
	// One token is enough: it says nothing but that the store must be looked at.
	changed := make(chan struct{}, 1)
	lookAgain := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(crds.ApiextensionsV1().RESTClient(),
			"customresourcedefinitions", "", only),
		ObjectType: &apiextensionsv1.CustomResourceDefinition{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: lookAgain, UpdateFunc: func(_, now any) { lookAgain(now) }, DeleteFunc: lookAgain},
		Transform:  slim,
		Logger:     &logger,
	})
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	watching.Go(func() {
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
		lookAgain(nil) // also where there is none
	})
	(&loop{
		run: g.runs, seen: &g.seen, changed: changed, log: logger, running: shared.Running(g.name()), restarts: shared.Restarts(g.name()),
		want: func() target {
			if !informer.HasSynced() {
				return target{}
			}
			return g.wanted(g.find(store.List()))
		},
	}).serve(ctx)
	watching.Wait()
	return nil
}

// name is how the CRD is called in the log and in metrics.
func (g *Gate) name() string {
	if g.CRDName != "" {
		return g.CRDName
	}
	return g.Kind.String()
}

// Missing is a CRD that is not there, or a version that it does not serve.
type Missing struct {
	CRD, Version, Kind string
	// Absent: the CRD is not there, or not established.
	Absent bool
	// Resource is the kind in a version that is served; its Version is empty where there is none.
	Resource schema.GroupVersionResource
}

// Error says what is served, and what to do.
func (m Missing) Error() string {
	if m.Absent {
		return fmt.Sprintf("CRD %s is not installed", m.CRD)
	}
	serves := "no version"
	if m.Resource.Version != "" {
		serves = "only " + m.Resource.Version
	}
	return fmt.Sprintf("CRD %s serves %s, not %s, which this manager needs: its objects are not driven; install a CRD that serves both (kubectl phasegate check crds-installed says how)", m.CRD, serves, m.Version)
}

// target is what a copy runs for: a CRD, as long as it is the same, and serves the version or does not; or none. Of the zero
// value nothing is known yet.
type target struct {
	uid     types.UID
	missing Missing // the zero value where the version is served
}

func (g *Gate) runs(ctx context.Context, t target) error {
	if t.missing == (Missing{}) {
		return g.Run(ctx, nil)
	}
	if !t.missing.Absent {
		log.FromContext(ctx).Error(t.missing, "no object is driven")
	}
	return g.Run(ctx, &t.missing)
}

// wanted is what a controller should be running for.
//
// A CRD that is being deleted still counts: its objects may carry finalizers
// that only the controller removes, and without it the CRD would never go.
func (g *Gate) wanted(crd *apiextensionsv1.CustomResourceDefinition) target {
	if !established(crd) {
		return target{missing: Missing{CRD: g.name(), Absent: true}}
	}
	t := target{uid: crd.UID}
	if g.Version == nil {
		return t
	}
	version := g.Version()
	served := slices.DeleteFunc(slices.Clone(crd.Spec.Versions), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
	if slices.ContainsFunc(served, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version }) {
		return t
	}
	t.missing = Missing{CRD: crd.Name, Version: version, Kind: crd.Spec.Names.Kind, Resource: schema.GroupVersionResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}}
	if len(served) > 0 {
		t.missing.Resource.Version = served[0].Name
	}
	return t
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd != nil && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// find is the CRD among all that were last seen, nil if it does not exist. Two
// may claim a kind; the API server establishes one of them only.
func (g *Gate) find(all []any) *apiextensionsv1.CustomResourceDefinition {
	var found *apiextensionsv1.CustomResourceDefinition
	for _, obj := range all {
		crd := obj.(*apiextensionsv1.CustomResourceDefinition)
		kind := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		if (crd.Name == g.CRDName || kind == g.Kind) && (found == nil || established(crd)) {
			found = crd
		}
	}
	return found
}

// slim keeps what this package looks at: the schemas of all CRDs of a cluster
// would be the most of the manager's memory.
func slim(obj any) (any, error) {
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		crd.ManagedFields, crd.Annotations, crd.Spec.Conversion = nil, nil, nil
		for i, v := range crd.Spec.Versions {
			crd.Spec.Versions[i] = apiextensionsv1.CustomResourceDefinitionVersion{Name: v.Name, Served: v.Served}
		}
	}
	return obj, nil
}

// sight is what the loop saw when it last looked: what a copy should be running for, and what one runs for.
type sight struct{ wanted, running target }

// Ready says for a probe what the gate does; it is an error while the CRD is
// there and its controller is not. It asks nobody and may be called at any time.
func (g *Gate) Ready(context.Context) (string, error) {
	seen := g.seen.Load()
	switch {
	case seen == nil, seen.wanted == target{}:
		return "not started: only the leader's controllers run", nil
	case seen.wanted.missing.Absent:
		return fmt.Sprintf("waits for CRD %s", g.name()), nil
	case seen.wanted.missing != Missing{}:
		return "", seen.wanted.missing
	case seen.wanted != seen.running:
		return "", fmt.Errorf("CRD %s is established but its controller does not run: the log says why it ended; it is started again within %s", g.name(), longRest)
	default:
		return fmt.Sprintf("runs for CRD %s", g.name()), nil
	}
}

// Rights are what a Gate needs: to see the CRD of its name, or all of them where it knows the kind only and crdName is empty;
// and for its controller to ask whether there is the one of MachineState.
func Rights(crdName string) []rbacv1.PolicyRule {
	const group, resource = "apiextensions.k8s.io", "customresourcedefinitions"
	if crdName == "" {
		return []rbacv1.PolicyRule{rbac.Rule("list watch", group, resource)}
	}
	return []rbacv1.PolicyRule{
		rbac.Rule("list watch", group, resource, crdName),
		rbac.Rule("list", group, resource, v1alpha1.MachineStateCRD),
	}
}
