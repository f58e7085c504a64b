package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/resources"
)

const poolKind = "IPPool"

// ipPool is what decides which of two IP pools that overlap is used.
type ipPool struct {
	name        string
	cidr        netip.Prefix
	allocatable metav1.ConditionStatus // of the condition Allocatable; "" if there is none
	created     metav1.Time
}

// warnOfOverlaps names the IP pools that overlap and between which the time of creation
// decides: a copy is as old as the migration. Copies are made in the order of v1, but
// the API server counts in seconds.
func (s *copying) warnOfOverlaps(ctx context.Context, sc *scope) error {
	kind, known := s.registry.Kind(poolKind)
	if !known {
		return nil
	}
	var pools []ipPool
	err := s.copier(sc.Object).EachV1(ctx, kind, func(obj *unstructured.Unstructured) error {
		if pool, ok := poolOf(obj); ok {
			pools = append(pools, pool)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found := overlaps(pools); len(found) > 0 {
		sc.Warn("OverlappingIPPools", "IP pools overlap, and their age decides which is used, which a copy does not keep: %s. Disable or shrink one of each",
			strings.Join(examples(found, asIs), "; "))
	}
	return nil
}

// poolOf leaves out what is no pool, which Plan names, and what is on its way out.
func poolOf(obj *unstructured.Unstructured) (ipPool, bool) {
	cidr, _, _ := unstructured.NestedString(obj.Object, "spec", "cidr")
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || obj.GetDeletionTimestamp() != nil {
		return ipPool{}, false
	}
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if raw, ok := obj.Object["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status) // what cannot be read says nothing
	}
	pool := ipPool{name: obj.GetName(), cidr: prefix.Masked(), created: resources.Created(obj)}
	for _, c := range status.Conditions {
		if c.Type == "Allocatable" {
			pool.allocatable = c.Status
		}
	}
	return pool, true
}

// overlaps describes each pair of pools of which the copies may not be told apart as
// the pools are: their conditions, which are copied, are the same, and of two copies
// made in the same second the name decides.
func overlaps(pools []ipPool) []string {
	slices.SortFunc(pools, func(a, b ipPool) int {
		return cmp.Or(a.created.Compare(b.created.Time), cmp.Compare(a.name, b.name))
	})
	var found []string
	for i, older := range pools {
		for _, younger := range pools[i+1:] {
			if older.cidr.Overlaps(younger.cidr) && older.allocatable == younger.allocatable && younger.name < older.name {
				found = append(found, fmt.Sprintf("%s (%s) comes before %s (%s) now, and may come after it in v3",
					older.name, older.cidr, younger.name, younger.cidr))
			}
		}
	}
	return found
}
