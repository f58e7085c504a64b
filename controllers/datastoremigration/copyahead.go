package datastoremigration

import (
	"context"
	"sync"
	"time"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/resources/inflight"
)

const (
	// aheadRounds is how often everything is copied ahead where the machine does not say.
	aheadRounds = 5
	// aheadUntil is how few changes make a round the last one.
	aheadUntil = 100
	// What a lock takes, see docs/scale.md: whatever there is to copy, for the drain and for v3 to be served;
	// and for each object that is compared.
	cutOver     = 1500 * time.Millisecond
	compareEach = 20 * time.Microsecond
	// OwnersPerSecond is how many owners are added in a second at best.
	OwnersPerSecond = 500
)

// copyAhead copies through the side door in rounds, while the cluster works as before: each
// brings v3 to what v1 is by then. What the API server refuses, and conflicts, are outputs:
// nothing is locked, and there is time to correct them, and to be polite.
func (s *copying) copyAhead(ctx context.Context, sc *scope) (outputs, error) {
	ctx = inflight.WithLowPriority(ctx)
	var warm sync.WaitGroup
	defer warm.Wait()
	if isAhead(sc) {
		warm.Go(func() { s.door.warm(ctx, sc) })
	}
	var last copier.Result
	rounds, until := sc.With.Int("rounds", aheadRounds), int64(sc.With.Int("until", aheadUntil))
	for round := 1; round <= rounds && isAhead(sc); round++ {
		began := sc.Clock.Now()
		blocked, err := s.door.overV3(ctx, sc, func(version string) (err error) {
			last, err = s.copyOnce(ctx, sc, version, "Copying ahead")
			return err
		})
		if err != nil {
			return nil, err
		}
		if blocked != "" {
			refuseAhead(sc, blocked)
			break
		}
		slow, err := s.slowWebhooks(ctx)
		if err != nil {
			return nil, err
		}
		sc.Report(func(dm *migration) { showRound(dm, last, sc.Clock.Now().Sub(began), longestDelay(slow)) })
		out := copied(last)
		if out["conflicts"] != 0 || len(last.Rejected) > 0 || last.Changed() < until {
			return out, nil
		}
	}
	if !isAhead(sc) {
		return s.validate(ctx, sc)
	}
	return copied(last), nil
}

// validate names what v3 would refuse, where copying ahead does not come to it any more:
// under the lock it would end the migration.
func (s *copying) validate(ctx context.Context, sc *scope) (outputs, error) {
	plan, err := s.copier(sc.Object).Plan(ctx, true)
	return copied(copier.Result{Rejected: plan.Problems}), err
}

// isAhead is false where the door was given up since it was opened: under the lock it is
// all copied anyway.
func isAhead(sc *scope) (open bool) {
	sc.Report(func(dm *migration) {
		open = dm.Status.CopyAhead != nil && dm.Status.CopyAhead.State == migrationv1.CopyAheadOpen
	})
	return open
}

// showRound also tells how long the lock will last.
func showRound(dm *migration, result copier.Result, took, delay time.Duration) {
	ahead := dm.Status.CopyAhead
	if ahead == nil {
		return
	}
	rate := perSecond(result.Done, took)
	expected, basis := ExpectedLock(result.Done, rate, result.Deferred, delay)
	ahead.Round++
	ahead.Changed = int32(result.Changed())
	ahead.ExpectedLockSeconds = expected
	ahead.Message = "expected: " + basis
}
