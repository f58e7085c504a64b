package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/pager"
)

// v3CRDs finds v3 CRDs that could not take a copy.
func (s *preflight) v3CRDs() check.Check {
	return check.Check{ID: "v3-crds", Title: "Calico's v3 CRDs can take the copies", Run: func(ctx context.Context) ([]check.Finding, error) {
		var findings []check.Finding
		for _, kind := range s.registry.All() {
			crd, err := s.crd(ctx, kind.V3CRDName())
			if err != nil {
				return nil, err
			}
			if why := unusable(crd, kind); why != "" {
				findings = append(findings, check.Finding{Level: check.Failure, Message: fmt.Sprintf("CRD %s %s", kind.V3CRDName(), why),
					Remedy: "apply Calico's projectcalico.org/v3 CRDs"})
			}
		}
		return findings, nil
	}}
}

// unusable says why a v3 CRD could not take a copy; empty if it could. Nil is one that is not there.
func unusable(crd *apiextensionsv1.CustomResourceDefinition, kind *resources.Kind) string {
	if crd == nil {
		return "is not installed"
	}
	scope := apiextensionsv1.ClusterScoped
	if kind.Namespaced() {
		scope = apiextensionsv1.NamespaceScoped
	}
	serves := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kind.V3GVK().Version && v.Served && v.Storage
	})
	switch {
	case crd.DeletionTimestamp.IsZero() && crd.Spec.Scope != scope:
		return fmt.Sprintf("has scope %s instead of %s", crd.Spec.Scope, scope)
	case crd.DeletionTimestamp.IsZero() && !serves:
		return "does not serve and store v3"
	}
	return check.Unestablished(crd)
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

func (s *preflight) builtInTierRights() []rbacv1.PolicyRule {
	tier, ok := s.registry.Kind(tierKind)
	if !ok {
		return nil
	}
	names := make([]string, len(builtInTiers))
	for i, tier := range builtInTiers {
		names[i] = tier.name
	}
	return rule("get", resources.V1Group, tier.V1Plural(), names...)
}

// builtInTiers finds built-in tiers that the v3 CRD would refuse.
func (s *preflight) builtInTiers() check.Check {
	return check.Check{ID: "builtin-tiers", Title: "the built-in tiers are as v3 demands them", Run: func(ctx context.Context) ([]check.Finding, error) {
		kind, ok := s.registry.Kind(tierKind)
		if !ok {
			return nil, nil
		}
		var findings []check.Finding
		for _, want := range builtInTiers {
			tier := &unstructured.Unstructured{}
			tier.SetGroupVersionKind(kind.V1GVK())
			tier, err := read(ctx, s.client, byName(want.name), tier, "Tier "+want.name)
			if err := pager.UnlessAbsent(ctx, s.client, kind.V1CRDName(), err); err != nil {
				return nil, err
			}
			if tier == nil {
				continue
			}
			order, hasOrder := number(tier, "spec", "order")
			action, _, _ := unstructured.NestedString(tier.Object, "spec", "defaultAction") // an empty one is not copied
			orderOK := order == want.order || want.lenient && !hasOrder
			actionOK := action == want.action || want.lenient && action == ""
			if !orderOK || !actionOK {
				findings = append(findings, check.Finding{Level: check.Failure,
					Message: fmt.Sprintf("Tier %s has %s; v3 demands order %.0f and defaultAction %s", want.name, orderAndAction(tier), want.order, want.action),
					Remedy:  "find out who changed it, and correct it"})
			}
		}
		return findings, nil
	}}
}

func orderAndAction(tier *unstructured.Unstructured) string {
	text := "no order"
	if order, found := number(tier, "spec", "order"); found {
		text = fmt.Sprintf("order %.0f", order)
	}
	if action, _, _ := unstructured.NestedString(tier.Object, "spec", "defaultAction"); action != "" {
		return text + " and defaultAction " + action
	}
	return text + " and no defaultAction"
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

// lockIsFree finds a lock that somebody else holds than the migration that asks, and
// a cluster that does not let this program write the lock.
func (s *preflight) lockIsFree(dm *migration) check.Check {
	asking := uidOf(dm)
	return check.Check{ID: "lock", Title: "the datastore is open, and can be locked", Run: func(ctx context.Context) ([]check.Finding, error) {
		info, err := s.v1Info(ctx)
		if err != nil || info == nil {
			return nil, err
		}
		if !isReady(info) {
			return s.whoLocked(ctx, lockedBy(info), asking)
		}
		body := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"datastoreReady":false}}`))
		err = s.client.Patch(ctx, info.DeepCopy(), body, client.DryRunAll)
		if apierrs.IsForbidden(err) || apierrs.IsInvalid(err) || apierrs.IsBadRequest(err) {
			return []check.Finding{{Level: check.Failure, Message: fmt.Sprintf("the lock cannot be written, a dry run was refused (%v)", err),
				Remedy: "let this service account write ClusterInformation"}}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("try to write the lock: %w", err)
		}
		return nil, nil
	}}
}

// uidOf is empty where there is no migration.
func uidOf(dm *migration) types.UID {
	if dm == nil {
		return ""
	}
	return dm.UID
}

// whoLocked is no failure where no migration asks and one holds the lock: it does so
// from the cut-over until v1 is gone.
func (s *preflight) whoLocked(ctx context.Context, holder, asking types.UID) ([]check.Finding, error) {
	if asking != "" && holder == asking {
		return nil, nil // so it can be written; and the fence refuses dry runs by now
	}
	all, err := s.migrations(ctx)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(holder), handPrefix) {
		return []check.Finding{{Level: check.Failure, Message: fmt.Sprintf("v1 ClusterInformation has datastoreReady=false: a person closed it (%s)", holder),
			Remedy: "when it is safe: kubectl phasegate unlock"}}, nil
	}
	gone := holder != ""
	for i := range all {
		if all[i].UID == holder && asking == "" {
			return []check.Finding{{Level: check.Info, Message: "v1 is locked by DatastoreMigration " + all[i].Name}}, nil
		}
		gone = gone && all[i].UID != holder
	}
	if gone {
		return []check.Finding{{Level: check.Failure, Message: fmt.Sprintf("v1 ClusterInformation has datastoreReady=false, locked by a DatastoreMigration that is gone, UID %s: its finalizer was removed by hand, so nothing released what it held", holder),
			Remedy: "release it by kubectl phasegate unlock, or by hand as docs/operate/break-glass.md says under \"A migration that is gone\"; then this one continues; if the cluster was migrated already and uses v3, see \"A cluster that was migrated\" in docs/operate/backup-restore.md"}}, nil
	}
	return []check.Finding{{Level: check.Failure, Message: fmt.Sprintf("v1 ClusterInformation has datastoreReady=false, locked by %q", holder),
		Remedy: "find out who locked the datastore, then: kubectl phasegate unlock"}}, nil
}
