package fsm

import (
	"regexp"
	"time"
)

// item is one of a list that is not done.
type item struct {
	Key   string `json:"key"`
	Value any    `json:"item,omitempty"`
	// Taken: this loop has put the effect of its step on record for the item.
	Taken bool `json:"taken,omitempty"`

	// outputs are what the action has said of it last.
	outputs map[string]any
}

// round is a look at the items.
type round struct {
	left     []*item
	parallel int
	looked   map[string]bool
	// due: what calls something outside the cluster may be called in this round.
	due bool
	// failed is the first error that is tried again; after and waits are those of the first item that waits.
	failed *Result
	after  time.Duration
	waits  string
	// saved is when the items were stored last.
	saved time.Time
}

// itemKey is what a line of the ledger, a label and a status can hold.
var itemKey = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:/-]{0,251}[A-Za-z0-9])?$`)

// maxItems is how much of items a MachineState holds; the CRDs say the same.
const maxItems = 256 << 10
