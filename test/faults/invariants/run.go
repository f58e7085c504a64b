package invariants

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/fsm"
)

// End is how far a migration has come when it is checked.
type End string

const (
	// AtGate is when everything is verified, and nothing is open yet.
	AtGate End = "AtGate"
	// Open is Converged or Complete.
	Open End = "Open"
	// CleanedUp is deleted after Complete.
	CleanedUp End = "CleanedUp"
	// GivenBack is deleted or failed before the point of no return.
	GivenBack End = "GivenBack"
)

// Run is one migration, from the outside.
type Run struct {
	End           End
	Before, After *State
	Record        Record
	// Machine is the one that the migration should have gone through.
	Machine *fsm.Machine
	// Accepted are writes of v1 by others that went through while the fence was told to
	// hold; nil also where nobody has tried.
	Accepted []string
	// Took is how long it was from the fault to the end, which must not be longer than
	// Limit; 0: it is not measured.
	Took, Limit time.Duration
}

// checks are the invariants, in order. Each lists what is wrong.
var checks = []struct {
	id, what string
	of       func(Run) []string
}{
	{"I1", "nothing is lost", Run.lost},
	{"I2", "nothing is there twice, and nothing astray", Run.strays},
	{"I3", "the content is the same", Run.content},
	{"I4", "nobody writes v1 while the fence holds", func(r Run) []string { return r.Accepted }},
	{"I5", "objects of others are as they were", Run.others},
	{"I6", "progress does not go back, and the phases are in the order of the machine", Run.order},
	{"I7", "it ends well, in time", Run.ending},
	{"I8", "no owner is missing", Run.owners},
	{"I9", "v1 is unlocked once at most", Run.unlocks},
}

// shownFlaws bounds what one invariant says: a thousand objects may be lost at once.
const shownFlaws = 5

// Check returns a line for each violation: nothing where all invariants hold.
func (r Run) Check() []string {
	var all []string
	for _, check := range checks {
		flaws := check.of(r)
		slices.Sort(flaws)
		for i, flaw := range flaws {
			if i == shownFlaws {
				all = append(all, fmt.Sprintf("%s: and %d more", check.id, len(flaws)-i))
				break
			}
			all = append(all, fmt.Sprintf("%s: %s: %s", check.id, check.what, flaw))
		}
	}
	return all
}

func (r Run) migration() types.UID {
	if len(r.Record.Statuses) == 0 {
		return ""
	}
	return r.Record.Statuses[0].UID
}
