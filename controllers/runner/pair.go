package runner

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
)

// Pair is the controller of a kind and that of what its objects have left. It is a
// manager.Runnable that runs on the leader only.
type Pair struct {
	// Machine drives the objects; nothing runs before it is in force.
	Machine            *machinestore.Handle
	Objects, Leftovers *crdgate.Gate
}

// NeedLeaderElection makes the manager start both on the leader only.
func (p *Pair) NeedLeaderElection() bool { return true }

// Start runs until ctx is done and both have ended.
func (p *Pair) Start(ctx context.Context) error {
	if !p.Machine.Await(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.Objects.Start(ctx) })
	group.Go(func() error { return p.Leftovers.Start(ctx) })
	return group.Wait()
}

// Ready says for a probe what the controller of the objects does, and is an error while one
// of the two should run and does not.
func (p *Pair) Ready(ctx context.Context) (string, error) {
	note, err := p.Objects.Ready(ctx)
	_, states := p.Leftovers.Ready(ctx)
	return note, errors.Join(err, states)
}
