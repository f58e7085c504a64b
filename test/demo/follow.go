package main

import (
	"context"
	"fmt"
	"time"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// follow shows the way of the migration until it is in phase. It gives up at
// once when the manager has ended or the migration has failed.
func (s *story) follow(ctx context.Context, phase string, limit time.Duration) (*migrationv1.DatastoreMigration, error) {
	var dm *migrationv1.DatastoreMigration
	err := harness.Await(ctx, "phase "+phase, limit, func(ctx context.Context) (err error) {
		if err := s.manager.Alive(); err != nil {
			return err
		}
		if dm, err = s.scene.Migration(ctx, setup.MigrationName); err != nil {
			return err
		}
		s.showTransitions(dm)
		switch status := &dm.Status; dm.CurrentPhase() {
		case phase:
			return nil
		case "Failed", "RollingBack":
			return harness.Permanent(fmt.Errorf("it is %s: %s", status.Phase, status.Message))
		default:
			s.out.progress(progressLine(status))
			return fmt.Errorf("it is %s, step %q: %s", status.Phase, status.Machine.Step, status.Message)
		}
	})
	return dm, err
}

// showTransitions prints those that were not printed yet; the history is short
// enough that none has dropped out of it.
func (s *story) showTransitions(dm *migrationv1.DatastoreMigration) {
	history := dm.Status.Machine.History
	for _, t := range history[min(s.shown, len(history)):] {
		if t.From == "" {
			s.out.line("started in %s", t.To)
			continue
		}
		s.out.line("%s → %s after %s: %s", t.From, t.To, seconds(t.Took.Duration), t.Reason)
	}
	s.shown = len(history)
}

func progressLine(status *migrationv1.DatastoreMigrationStatus) string {
	what := status.Message
	// Right after a transition the message is its reason, which was just printed.
	if n := len(status.Machine.History); n > 0 && what == status.Machine.History[n-1].Reason {
		what = ""
	}
	p := status.Progress
	if p == nil || p.Total == 0 {
		return what
	}
	done := int(p.Finished() + p.Conflicts)
	return fmt.Sprintf("%s %4d/%d  %s", bar(done, int(p.Total)), done, p.Total, what)
}

// timeIn adds up how long the migration was in a phase that it has left.
func timeIn(dm *migrationv1.DatastoreMigration, phase string) (total time.Duration) {
	for _, t := range dm.Status.Machine.History {
		if t.From == phase {
			total += t.Took.Duration
		}
	}
	return total
}
