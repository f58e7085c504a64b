// Package v1alpha1 holds the file kinds that an operator author edits (Machine
// and KindRegistry) and MachineStatus, the block that the status of every
// machine-driven object embeds.
//
// The types are data only: what they mean is decided by packages fsm and
// resources, which this package must not know.
package v1alpha1

const (
	// Group is the API group of the file kinds.
	Group = "phasegate.dev"
	// APIVersion is what `apiVersion:` of a machine or registry file must say.
	APIVersion = Group + "/v1alpha1"
	// KindMachine is the kind of a machine file.
	KindMachine = "Machine"
)
