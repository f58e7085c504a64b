package crdgate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// sight is what the loop saw when it last looked: the UID of the CRD that a copy should be running for, and of the one
// that it runs for; empty for none.
type sight struct{ wanted, running types.UID }

// Ready says for a probe what the gate does; it is an error while the CRD is
// there and its controller is not. It asks nobody and may be called at any time.
func (g *Gate) Ready(context.Context) (string, error) {
	seen := g.seen.Load()
	switch {
	case seen == nil:
		return "not started: only the leader's controllers run", nil
	case seen.wanted == "":
		return fmt.Sprintf("waits for CRD %s", g.name()), nil
	case seen.wanted != seen.running:
		return "", fmt.Errorf("CRD %s is established but its controller does not run: the log tells why it ended; it is started again within %s", g.name(), longRest)
	default:
		return fmt.Sprintf("runs for CRD %s", g.name()), nil
	}
}
