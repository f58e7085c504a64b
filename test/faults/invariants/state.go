// Package invariants is the one checker of what must hold for a migration whatever
// went wrong on its way: I1 to I9. It looks at a cluster from outside, with an
// administrator's eyes, and shares no code with the copier or the steps.
package invariants

import (
	"context"
	"fmt"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/equality"
)

// SentinelLabel marks the objects outside Calico that a migration must not harm.
const SentinelLabel = "faults.phasegate.dev/sentinel"

// Kinds outside Calico that are looked at.
var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	sentinels   = []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}}
	fences      = []schema.GroupVersionResource{
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	}
)

const (
	apiServiceName = "v3.projectcalico.org"
)

// Eye is what looks. All its fields are set before the first look.
type Eye struct {
	Client   dynamic.Interface
	Registry *resources.Registry
	// Stored lists what is in the storage of the v3 CRDs, as Scene.Stored does.
	Stored func(context.Context) ([]string, error)
}

// State is everything that a migration may change, and what it must not change.
type State struct {
	// V1 are the objects of v1 as they are stored, the lock among them; empty when
	// the CRDs are gone.
	V1 equality.Side
	// V3 is what users of v3 see, whoever answers.
	V3 equality.Side
	// Stored is what is in the storage of the v3 CRDs, whoever serves v3.
	Stored []string
	// Others are the APIService, the objects outside Calico, and fences.
	Others equality.Side
}

// Look reads everything. Nothing is written.
func (e Eye) Look(ctx context.Context) (*State, error) {
	s := &State{V1: equality.Side{}, Others: equality.Side{}}
	for _, kind := range e.Registry.All() {
		if err := e.into(ctx, s.V1, kind.V1GVR(), metav1.ListOptions{}); err != nil {
			return nil, err
		}
	}
	var err error
	if s.V3, err = (equality.Reader{Client: e.Client, Registry: e.Registry}).V3(ctx); err != nil {
		return nil, err
	}
	if s.Stored, err = e.Stored(ctx); err != nil {
		return nil, err
	}
	for _, gvr := range sentinels {
		if err := e.into(ctx, s.Others, gvr, metav1.ListOptions{LabelSelector: SentinelLabel}); err != nil {
			return nil, err
		}
	}
	for _, gvr := range fences {
		for _, side := range []string{"v1", "v3"} {
			if err := e.into(ctx, s.Others, gvr, metav1.ListOptions{FieldSelector: "metadata.name=" + side + "-fence.migration.projectcalico.org"}); err != nil {
				return nil, err
			}
		}
	}
	return s, e.into(ctx, s.Others, apiServices, metav1.ListOptions{FieldSelector: "metadata.name=" + apiServiceName})
}

// into lists; what is not served has no objects.
func (e Eye) into(ctx context.Context, side equality.Side, gvr schema.GroupVersionResource, o metav1.ListOptions) error {
	list, err := e.Client.Resource(gvr).List(ctx, o)
	if apierrs.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	for i := range list.Items {
		obj := &list.Items[i]
		side[keyOf(obj)] = obj
	}
	return nil
}

func keyOf(obj *unstructured.Unstructured) equality.Key {
	return equality.Key{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func builtinTier(name string) bool {
	return name == "default" || name == "kube-admin" || name == "kube-baseline"
}
