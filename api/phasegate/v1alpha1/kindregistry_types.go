package v1alpha1

// KindRegistry is a registry file: the kinds that a datastore migration carries from one API group to
// the other. A further kind is a further entry; nothing else in the program lists kinds.
type KindRegistry struct {
	// APIVersion is phasegate.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is KindRegistry.
	Kind string `json:"kind"`
	// Metadata names the registry.
	Metadata FileMeta `json:"metadata"`
	// Spec lists the kinds.
	Spec KindRegistrySpec `json:"spec"`
}

// KindRegistrySpec lists the kinds.
type KindRegistrySpec struct {
	// Kinds are the entries; v3 kinds and plurals are unique.
	Kinds []RegistryKind `json:"kinds"`
}

// OrderCreation is the one value of RegistryKind.Order besides none.
const OrderCreation = "creation"

// RegistryKind describes one kind: what it is called on both sides, what it depends on, and how it is
// read, converted and compared.
type RegistryKind struct {
	// Kind is the v3 kind, such as IPPool.
	Kind string `json:"kind"`
	// Plural is the v3 resource, such as ippools.
	Plural string `json:"plural"`
	// Scope is Cluster or Namespaced.
	Scope string `json:"scope"`
	// V1 holds the v1 names where they differ from the v3 ones.
	V1 *RegistryV1Names `json:"v1,omitempty"`
	// After names the v3 kinds whose objects must be there before an object of this kind is written.
	After []string `json:"after,omitempty"`
	// Order is creation where it matters which object is older: the copies are then created one after
	// the other, in the order in which the v1 objects were. Else the order means nothing.
	Order string `json:"order,omitempty"`
	// List says how the v1 objects are listed.
	List RegistryList `json:"list,omitempty"`
	// Converters are applied in this order, after the rules that hold for every kind.
	Converters []string `json:"converters,omitempty"`
	// Status is true where the v3 CRD has a status subresource, so that a create drops the status.
	Status bool `json:"status,omitempty"`
	// Lock is true for the one kind that is the datastore lock. It is never copied with the others.
	Lock bool `json:"lock,omitempty"`
	// Compare says what is no difference between two objects of this kind.
	Compare RegistryCompare `json:"compare,omitempty"`
	// Needs names the rule by which objects of this kind keep one of another kind from going while it
	// is being deleted: tier (a policy keeps its tier), pool (a block of addresses keeps its pool).
	Needs string `json:"needs,omitempty"`
	// Undeletable names objects whose deletion an admission policy of Calico's denies.
	Undeletable []string `json:"undeletable,omitempty"`
}

// RegistryV1Names are the names of a kind in the v1 group.
type RegistryV1Names struct {
	// Kind in the v1 group; else the v3 kind.
	Kind string `json:"kind,omitempty"`
	// Plural in the v1 group; else the v3 one.
	Plural string `json:"plural,omitempty"`
}

// RegistryList says how the objects of a kind are listed.
type RegistryList struct {
	// PageSize is the number of objects per page; 0 means 500.
	PageSize int64 `json:"pageSize,omitempty"`
	// Selector is a label selector; objects that it does not match are not migrated.
	Selector string `json:"selector,omitempty"`
}

// RegistryCompare says what semantic equality overlooks.
type RegistryCompare struct {
	// AdmissionDefaults names what Calico's mutating admission policies fill in on a write, where
	// its absence means the same: tierLabel. A copy gets it from the conversion, since a cluster
	// may not have the policies.
	AdmissionDefaults []string `json:"admissionDefaults,omitempty"`
	// AbsentIsZero lists fields (spec.a.b, spec.list[].c) where absent and zero mean the same.
	AbsentIsZero []string `json:"absentIsZero,omitempty"`
	// ControllerFinalizers are added and removed by Calico's own controllers whenever they please.
	ControllerFinalizers []string `json:"controllerFinalizers,omitempty"`
}
