package main

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/fixture"
)

// checkSpecial looks at the objects that migrations are known to damage. It says
// what it found, and returns an error that names every failure.
func checkSpecial(v3 equality.Side) (found []string, err error) {
	owned, err := checkOwners(v3)
	found = append(found, fmt.Sprintf("%d policies owned by a Tier carry its new uid", owned))
	errs := []error{err}
	for _, special := range []struct {
		what string
		in   func(*unstructured.Unstructured) bool
		kind string
	}{
		{"an IPAMHandle keeps its upper-case handleID", upperCaseHandle, "IPAMHandle"},
		{"an IPAMBlock keeps releasedAt and strictAffinity", coolingBlock, "IPAMBlock"},
		{"an IPAMConfiguration keeps strictAffinity and autoAllocateBlocks", strictIPAM, "IPAMConfiguration"},
	} {
		if anyOf(v3, special.kind, special.in) {
			found = append(found, special.what)
		} else {
			errs = append(errs, fmt.Errorf("no longer so in v3: %s", special.what))
		}
	}
	return found, errors.Join(errs...)
}

func anyOf(s equality.Side, kind string, is func(*unstructured.Unstructured) bool) bool {
	for k, obj := range s {
		if k.Kind == kind && is(obj) {
			return true
		}
	}
	return false
}

// checkOwners makes sure that every reference to a Calico owner is one that the
// garbage collector accepts, and that nothing owned by a Tier was collected.
func checkOwners(v3 equality.Side) (owned int, err error) {
	var errs []error
	for k, obj := range v3 {
		for _, ref := range obj.GetOwnerReferences() {
			if !strings.HasPrefix(ref.APIVersion, resources.V3Group+"/") {
				continue
			}
			if err := checkOwner(v3, ref); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", k, err))
			} else if k.Kind == "GlobalNetworkPolicy" && ref.Kind == "Tier" && ref.Name == fixture.OwnerTier {
				owned++
			}
		}
	}
	if owned != fixture.OwnedPolicies {
		errs = append(errs, fmt.Errorf("%d GlobalNetworkPolicies are owned by Tier %s, not %d", owned, fixture.OwnerTier, fixture.OwnedPolicies))
	}
	return owned, errors.Join(errs...)
}

func checkOwner(v3 equality.Side, ref metav1.OwnerReference) error {
	owner, found := v3[equality.Key{Kind: ref.Kind, Name: ref.Name}]
	switch {
	case !found:
		return fmt.Errorf("its owner %s %s is not in v3", ref.Kind, ref.Name)
	case owner.GetUID() != ref.UID:
		return fmt.Errorf("its owner %s %s has uid %s, the reference says %s", ref.Kind, ref.Name, owner.GetUID(), ref.UID)
	}
	return nil
}

func upperCaseHandle(obj *unstructured.Unstructured) bool {
	id, _, _ := unstructured.NestedString(obj.Object, "spec", "handleID")
	return id != strings.ToLower(id) && obj.GetName() == strings.ToLower(id)
}

func coolingBlock(obj *unstructured.Unstructured) bool {
	strict, _, _ := unstructured.NestedBool(obj.Object, "spec", "strictAffinity")
	attributes, _, _ := unstructured.NestedSlice(obj.Object, "spec", "attributes")
	for _, a := range attributes {
		if a, ok := a.(map[string]any); ok && a["releasedAt"] != nil {
			return strict
		}
	}
	return false
}

func strictIPAM(obj *unstructured.Unstructured) bool {
	strict, _, _ := unstructured.NestedBool(obj.Object, "spec", "strictAffinity")
	auto, found, _ := unstructured.NestedBool(obj.Object, "spec", "autoAllocateBlocks")
	return strict && found && !auto
}
