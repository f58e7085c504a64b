package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rights"
	"github.com/phasegate/phasegate/resources"
)

func (s *steps) preflightRights() []rbacv1.PolicyRule {
	all := grants([]rbacv1.PolicyRule{rights.Asking}, s.onV3CRDs("get"), s.onV1Lock("get patch"))
	if tier, ok := s.Registry.Kind(tierKind); ok {
		names := make([]string, len(builtInTiers))
		for i, tier := range builtInTiers {
			names[i] = tier.name
		}
		all = append(all, rights.Rule("get", resources.V1Group, tier.V1Plural(), names...))
	}
	return all
}

// preflight names every reason not to start. It runs before the finalizer has
// any consequence and before anything is locked, and it changes nothing.
func (s *steps) preflight(ctx context.Context, sc *scope) (outputs, error) {
	checks := []func(context.Context, *migration) ([]string, error){
		s.missingPermissions, s.unusableCRDs, s.driftedTiers, s.foreignLock,
	}
	found := make([][]string, len(checks))
	group, ctx := errgroup.WithContext(ctx)
	for i, check := range checks {
		group.Go(func() (err error) {
			found[i], err = check(ctx, sc.Object)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	blockers := slices.Concat(found...)
	return outputs{"blockers": examples(blockers, func(b string) string { return b })}, nil
}

// unusableCRDs are v3 CRDs that could not take a copy.
func (s *steps) unusableCRDs(ctx context.Context, _ *migration) ([]string, error) {
	var blockers []string
	for _, kind := range s.Registry.All() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := s.client.Get(ctx, types.NamespacedName{Name: kind.V3CRDName()}, crd)
		if apierrs.IsNotFound(err) {
			blockers = append(blockers, fmt.Sprintf("CRD %s is not installed: apply Calico's projectcalico.org/v3 CRDs", kind.V3CRDName()))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read CRD %s: %w", kind.V3CRDName(), err)
		}
		if why := unusable(crd, kind); why != "" {
			blockers = append(blockers, fmt.Sprintf("CRD %s %s", kind.V3CRDName(), why))
		}
	}
	return blockers, nil
}

func unusable(crd *apiextensionsv1.CustomResourceDefinition, kind *resources.Kind) string {
	scope := apiextensionsv1.ClusterScoped
	if kind.Namespaced() {
		scope = apiextensionsv1.NamespaceScoped
	}
	serves := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kind.V3GVK().Version && v.Served && v.Storage
	})
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	switch {
	case !crd.DeletionTimestamp.IsZero():
		return "is being deleted: wait, then apply it again"
	case crd.Spec.Scope != scope:
		return fmt.Sprintf("has scope %s instead of %s: apply Calico's CRD", crd.Spec.Scope, scope)
	case !serves:
		return "does not serve and store v3: apply Calico's CRD"
	case !established:
		return "is not Established: see its conditions with kubectl describe crd"
	}
	return ""
}

const tierKind = "Tier"

// builtInTiers are the fields that v3 demands of Calico's own tiers. A tier
// that says nothing about a field of `default` gets the right value by itself.
var builtInTiers = []struct {
	name    string
	order   float64
	action  string
	lenient bool
}{
	{"default", 1_000_000, "Deny", true},
	{"kube-admin", 1_000, "Pass", false},
	{"kube-baseline", 10_000_000, "Pass", false},
}

// driftedTiers are built-in tiers that the v3 CRD would refuse.
func (s *steps) driftedTiers(ctx context.Context, _ *migration) ([]string, error) {
	kind, ok := s.Registry.Kind(tierKind)
	if !ok {
		return nil, nil
	}
	var blockers []string
	for _, want := range builtInTiers {
		tier := &unstructured.Unstructured{}
		tier.SetGroupVersionKind(kind.V1GVK())
		err := s.client.Get(ctx, types.NamespacedName{Name: want.name}, tier)
		if apierrs.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read Tier %s: %w", want.name, err)
		}
		order, hasOrder := number(tier, "spec", "order")
		action, hasAction, _ := unstructured.NestedString(tier.Object, "spec", "defaultAction")
		orderOK := order == want.order || want.lenient && !hasOrder
		actionOK := action == want.action || want.lenient && !hasAction
		if !orderOK || !actionOK {
			blockers = append(blockers, fmt.Sprintf("Tier %s must have order %.0f and defaultAction %s: correct it", want.name, want.order, want.action))
		}
	}
	return blockers, nil
}

func number(u *unstructured.Unstructured, path ...string) (float64, bool) {
	value, found, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	switch n := value.(type) {
	case int64:
		return float64(n), found
	case float64:
		return n, found
	}
	return 0, false
}

// foreignLock finds a lock that somebody else holds, and a cluster that does
// not let this program write the lock.
func (s *steps) foreignLock(ctx context.Context, dm *migration) ([]string, error) {
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if meta.IsNoMatchError(err) || err == nil && info == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !isReady(info) && lockedBy(info) != dm.UID {
		return []string{fmt.Sprintf("v1 ClusterInformation has datastoreReady=false, locked by %q: find out who locked the datastore and open it", lockedBy(info))}, nil
	}
	body := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"datastoreReady":false}}`))
	err = s.client.Patch(ctx, info.DeepCopy(), body, client.DryRunAll)
	if apierrs.IsForbidden(err) || apierrs.IsInvalid(err) || apierrs.IsBadRequest(err) {
		return []string{fmt.Sprintf("the lock cannot be written, a dry run was refused (%v): let this service account write ClusterInformation", err)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("try to write the lock: %w", err)
	}
	return nil, nil
}
