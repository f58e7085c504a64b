package crds

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	fieldManager = "phasegate-test"
	inFlight     = 16
	pollEvery    = 50 * time.Millisecond
	readyWithin  = time.Minute
)

var (
	crdGVR        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServiceGVR = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// Install applies the set and returns once discovery lists every kind of it, so that the caller may
// create objects at once. It may be called again; definitions that are there are brought to the set's
// content. A group version whose APIService belongs to an aggregated server is not waited for: its
// CRDs are Established but shadowed.
func Install(ctx context.Context, cfg *rest.Config, set Set) error {
	cfg = unlimited(cfg)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for CRDs: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for discovery: %w", err)
	}
	if err := applyAll(ctx, set.CRDs, func(ctx context.Context, crd *unstructured.Unstructured) error {
		return apply(ctx, client.Resource(crdGVR), crd)
	}); err != nil {
		return err
	}
	if err := waitEstablished(ctx, client, set.CRDs); err != nil {
		return err
	}
	if err := waitListed(ctx, client, disco, set.CRDs); err != nil {
		return err
	}
	return installAdmission(ctx, client, disco, set.Admission)
}

// unlimited copies cfg without the client-side rate limit, which would take longer than the server.
func unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	return cfg
}

func applyAll(ctx context.Context, objs []*unstructured.Unstructured, one func(context.Context, *unstructured.Unstructured) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, obj := range objs {
		g.Go(func() error { return one(ctx, obj) })
	}
	return g.Wait()
}

func apply(ctx context.Context, r dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	if _, err := r.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}

func waitEstablished(ctx context.Context, client dynamic.Interface, crds []*unstructured.Unstructured) error {
	missing := sets.New[string]()
	for _, crd := range crds {
		missing.Insert(crd.GetName())
	}
	err := wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true, func(ctx context.Context) (bool, error) {
		list, err := client.Resource(crdGVR).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			if established(&list.Items[i]) {
				missing.Delete(list.Items[i].GetName())
			}
		}
		return missing.Len() == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until CRDs are Established, still missing %v: %w", sets.List(missing), err)
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" {
			return c["status"] == "True"
		}
	}
	return false
}

// waitListed waits for discovery, which follows Established by a few hundred milliseconds: until then
// a REST mapper does not know the kind.
func waitListed(ctx context.Context, client dynamic.Interface, disco discovery.DiscoveryInterface, crds []*unstructured.Unstructured) error {
	for gv, plurals := range pluralsByGroupVersion(crds) {
		err := wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true, func(ctx context.Context) (bool, error) {
			if shadowed, err := isAggregated(ctx, client, gv); shadowed || err != nil {
				return shadowed, err
			}
			list, err := disco.ServerResourcesForGroupVersion(gv)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
				return false, err
			}
			if list != nil {
				for _, r := range list.APIResources {
					plurals.Delete(r.Name)
				}
			}
			return plurals.Len() == 0, nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s lists %v: %w", gv, sets.List(plurals), err)
		}
	}
	return nil
}

func pluralsByGroupVersion(crds []*unstructured.Unstructured) map[string]sets.Set[string] {
	out := map[string]sets.Set[string]{}
	for _, crd := range crds {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			gv := fmt.Sprintf("%s/%v", group, v.(map[string]any)["name"])
			if out[gv] == nil {
				out[gv] = sets.New[string]()
			}
			out[gv].Insert(plural)
		}
	}
	return out
}

// isAggregated says whether another server, and not the CRDs, answers for the group version.
func isAggregated(ctx context.Context, client dynamic.Interface, groupVersion string) (bool, error) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return false, err
	}
	svc, err := client.Resource(apiServiceGVR).Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, found, _ := unstructured.NestedMap(svc.Object, "spec", "service")
	return found, nil
}

// installAdmission applies the policies in the newest version of their API that the server has: the
// files name one that servers drop or add from release to release. A kind that it does not serve at all
// is left out.
func installAdmission(ctx context.Context, client dynamic.Interface, disco discovery.DiscoveryInterface, objs []*unstructured.Unstructured) error {
	plurals := map[string]schema.GroupVersionResource{}
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		gv := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: version}
		list, err := disco.ServerResourcesForGroupVersion(gv.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("discover %s: %w", gv, err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // not a subresource
				plurals[r.Kind] = gv.WithResource(r.Name)
			}
		}
	}
	return applyAll(ctx, objs, func(ctx context.Context, obj *unstructured.Unstructured) error {
		gvr, ok := plurals[obj.GetKind()]
		if !ok {
			return nil // an older or barer API server: Calico's users have nothing in its place either
		}
		obj = obj.DeepCopy()
		obj.SetAPIVersion(gvr.GroupVersion().String())
		return apply(ctx, client.Resource(gvr), obj)
	})
}
