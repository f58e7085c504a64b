package fsm

import (
	"errors"
	"fmt"
)

// table is the transition table and the only place that says whether an edge
// is legal. The design asks for github.com/looplab/fsm here; where that module
// can be fetched it can stand behind this type (docs/architecture.md says why
// it does not).
//
// A table is immutable, one per machine revision, and safe for concurrent use.
type table struct {
	edges map[edgeKey]string
	// names lists the events in document order; maps have none.
	names []string
}

// edgeKey is unique: a second edge for the same event and source is refused,
// never silently overwritten.
type edgeKey struct{ event, from string }

// errIllegal is returned for an edge that the machine does not have.
var errIllegal = errors.New("illegal transition")

func (t *table) add(event, from, to string) error {
	if t.edges == nil {
		t.edges = map[edgeKey]string{}
	}
	key := edgeKey{event, from}
	if _, dup := t.edges[key]; dup {
		return fmt.Errorf("edge %s from %s is declared twice", event, from)
	}
	t.edges[key] = to
	t.names = append(t.names, event)
	return nil
}

// fire answers the target of an event. The guard is asked once more at the
// moment of firing, so that no caller can skip it; nil means no guard.
func (t *table) fire(event, from string, guard func() error) (string, error) {
	to, ok := t.edges[edgeKey{event, from}]
	if !ok {
		return "", fmt.Errorf("%w: %s from %s", errIllegal, event, from)
	}
	if guard != nil {
		if err := guard(); err != nil {
			return "", fmt.Errorf("%w: %s from %s: %w", errIllegal, event, from, err)
		}
	}
	return to, nil
}
