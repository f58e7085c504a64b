package resources

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// The two API groups of a migration.
const (
	V1Group   = "crd.projectcalico.org"
	V1Version = "v1"
	V3Group   = "projectcalico.org"
	V3Version = "v3"
)

// defaultPageSize keeps one page of the largest usual objects well below a megabyte.
const defaultPageSize = 500

// Kind is one entry of the registry with its defaults filled in. It is immutable.
type Kind struct {
	entry      v1alpha1.RegistryKind
	version    string // of the v3 side, see Registry.Through
	v1Kind     string
	v1Plural   string
	selector   labels.Selector
	converters []converter
	absentZero [][]string
}

// Name is the v3 kind; it identifies the entry.
func (k *Kind) Name() string { return k.entry.Kind }

// Namespaced tells the scope.
func (k *Kind) Namespaced() bool { return k.entry.Scope == scopeNamespaced }

// HasStatus tells that the status has writers of its own, and takes a write of its own: the registry says so, or the
// v3 CRD has a status subresource, so that a create drops it. Where the write goes is PatchesStatus.
func (k *Kind) HasStatus(schema *Schema) bool {
	return k.entry.Status || schema != nil && schema.statusSubresource
}

// PatchesStatus tells that the status is written through the subresource, and else with the object: the CRD alone
// decides. Calico 3.32 has kinds with a status and without the subresource. Without a schema the registry is believed.
func (k *Kind) PatchesStatus(schema *Schema) bool {
	if schema == nil {
		return k.entry.Status
	}
	return schema.statusSubresource
}

// After are the v3 kinds whose objects must be there first.
func (k *Kind) After() []string { return slices.Clone(k.entry.After) }

// InOrder tells that the order in which objects are created means something: who came first.
func (k *Kind) InOrder() bool { return k.entry.Order == v1alpha1.OrderCreation }

// PageSize is the number of objects per list page, never 0.
func (k *Kind) PageSize() int64 { return cmp.Or(k.entry.List.PageSize, defaultPageSize) }

// Selector restricts what is migrated; it is never nil.
func (k *Kind) Selector() labels.Selector { return k.selector }

// Undeletable tells that an admission policy of Calico's may deny the deletion of this v3 object.
func (k *Kind) Undeletable(name string) bool { return slices.Contains(k.entry.Undeletable, name) }

// ControllerFinalizer tells that a controller of Calico's adds and removes this finalizer by itself.
func (k *Kind) ControllerFinalizer(finalizer string) bool {
	return slices.Contains(k.entry.Compare.ControllerFinalizers, finalizer)
}

// V1Kind is the kind in the v1 group.
func (k *Kind) V1Kind() string { return k.v1Kind }

// V1Plural is the plural in the v1 group.
func (k *Kind) V1Plural() string { return k.v1Plural }

// V3Plural is the plural in the v3 group.
func (k *Kind) V3Plural() string { return k.entry.Plural }

// V1GVK names the kind on the v1 side.
func (k *Kind) V1GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: V1Group, Version: V1Version, Kind: k.V1Kind()}
}

// V3GVK names the kind on the v3 side, for requests: its version is the one of Registry.Through.
func (k *Kind) V3GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: V3Group, Version: k.version, Kind: k.entry.Kind}
}

// V1GVR names the resource on the v1 side.
func (k *Kind) V1GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: V1Group, Version: V1Version, Resource: k.V1Plural()}
}

// V3GVR names the resource on the v3 side, as V3GVK does the kind.
func (k *Kind) V3GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: V3Group, Version: k.version, Resource: k.entry.Plural}
}

// V1CRDName is the name of the CustomResourceDefinition on the v1 side.
func (k *Kind) V1CRDName() string { return k.V1Plural() + "." + V1Group }

// V3CRDName is the name of the CustomResourceDefinition on the v3 side.
func (k *Kind) V3CRDName() string { return k.entry.Plural + "." + V3Group }
