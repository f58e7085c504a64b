package program

import "github.com/phasegate/phasegate/api/phasegate/v1alpha1"

// graph are the phases of a compiled file, and the ways between them.
type graph struct {
	*findings
	prog *Program
	// of is the kind that the program drives; empty: any.
	of v1alpha1.ObjectKind
}
