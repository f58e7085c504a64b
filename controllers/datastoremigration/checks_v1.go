package datastoremigration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/pager"
)

// metadataPage is how many objects are in a page of a list that has metadata only.
const metadataPage = 500

// onAllOfV1 is about kinds whose names nobody knows beforehand.
func onAllOfV1(verbs string) []rbacv1.PolicyRule { return rule(verbs, resources.V1Group, "*") }

// v1Kinds finds objects that would stay behind, because nobody knows their kind.
func (s *preflight) v1Kinds() check.Check {
	return check.Check{ID: "v1-kinds", Title: "every v1 kind that has objects is known", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		foreign, err := s.foreignV1(ctx)
		if err != nil {
			return nil, err
		}
		var findings []check.Finding
		for _, plural := range slices.Sorted(maps.Keys(foreign)) {
			n, err := s.count(ctx, foreign[plural], plural+"."+resources.V1Group, labels.Nothing())
			if err != nil {
				return nil, err
			}
			if n > 0 {
				findings = append(findings, check.Finding{Level: check.Failure,
					Message: fmt.Sprintf("%d objects of %s.%s would stay behind, the registry does not have their kind", n, plural, resources.V1Group),
					Remedy:  "add the kind to the registry (Helm: kinds.extra), or delete the objects"})
			}
		}
		return findings, nil
	}}
}

// selectors tells of objects that the registry leaves out on purpose.
func (s *preflight) selectors() check.Check {
	return check.Check{ID: "selectors", Title: "no selector of the registry leaves objects out", Run: func(ctx context.Context) ([]check.Finding, error) {
		var findings []check.Finding
		for _, kind := range s.registry.Kinds() {
			if kind.Selector().Empty() {
				continue
			}
			n, err := s.count(ctx, kind.V1GVK(), kind.V1CRDName(), kind.Selector())
			if err != nil {
				return nil, err
			}
			if n > 0 {
				findings = append(findings, check.Finding{Level: check.Warning,
					Message: fmt.Sprintf("%d objects of %s are left out by the selector %q, and stay in v1 with their CRD", n, kind.V1CRDName(), kind.Selector()),
					Remedy:  "if they are to be migrated, change the entry of the registry"})
			}
		}
		return findings, nil
	}}
}

// count counts the objects of a kind that a selector leaves out. A kind without a CRD has none.
func (s *preflight) count(ctx context.Context, gvk schema.GroupVersionKind, crd string, leavingOut labels.Selector) (int, error) {
	n, page := 0, &metav1.PartialObjectMetadataList{}
	err := s.eachPage(ctx, gvk, page, metadataPage, func() error {
		for i := range page.Items {
			if !leavingOut.Matches(labels.Set(page.Items[i].Labels)) {
				n++
			}
		}
		return nil
	})
	return n, pager.UnlessAbsent(ctx, s.client, crd, err)
}
