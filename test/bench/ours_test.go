package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/bench/report"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// controllerOfMigrations is the name of the controller in the manager's metrics.
const controllerOfMigrations = "phasegate-datastoremigration"

// ours is a migration by the manager's own process.
type ours struct {
	scene   *setup.Setup
	manager *harness.Process
	metrics string

	took  time.Duration
	peak  int64 // resident memory, bytes
	cpu   time.Duration
	steps []stepTime
	turns []turn
}

// turn is when a migration was first seen in a step.
type turn struct {
	at          time.Time
	phase, step string
}

// newOurs starts the manager and returns when it waits for migrations. The caller ends it.
func newOurs(ctx context.Context, s *setup.Setup, args ...string) (*ours, error) {
	metrics, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	args = append(args, "--metrics-bind-address", metrics, "--metrics-secure=false")
	manager, err := s.StartManager(args...)
	if err != nil {
		return nil, err
	}
	o := &ours{scene: s, manager: manager, metrics: metrics}
	err = harness.Await(ctx, "the manager to wait for migrations", patience, func(ctx context.Context) error {
		if err := manager.Alive(); err != nil {
			return err
		}
		shown, err := harness.Scrape(ctx, http.DefaultClient, "http://"+metrics)
		if err != nil {
			return err
		}
		if len(shown.With("controller_runtime_active_workers", "controller", controllerOfMigrations)) == 0 {
			return fmt.Errorf("it has no controller %s yet", controllerOfMigrations)
		}
		return nil
	})
	if err != nil {
		manager.Kill()
		return nil, err
	}
	return o, nil
}

// run creates a migration and waits until it has converged.
func (o *ours) run(ctx context.Context) error {
	before, err := harness.CPUOfProcess(o.manager.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := o.scene.Migrate(ctx, setup.MigrationName); err != nil {
		return err
	}
	dm, err := o.converged(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, o.manager.Tail(20))
	}
	for _, t := range dm.Status.Machine.History {
		if t.To == "Converged" {
			o.took = t.At.Sub(began)
		}
	}
	if o.cpu, err = harness.CPUOfProcess(o.manager.PID()); err != nil {
		return err
	}
	o.cpu -= before
	if o.peak, err = memoryOf(o.manager.PID(), "VmHWM"); err != nil {
		return err
	}
	o.steps, err = stepTimes(ctx, o.metrics)
	return err
}

func (o *ours) end() { o.manager.Kill() }

// converged watches: looking again and again would be among the requests that are counted.
func (o *ours) converged(ctx context.Context) (*migrationv1.DatastoreMigration, error) {
	news, err := o.scene.Client.Watch(ctx, &migrationv1.DatastoreMigrationList{})
	if err != nil {
		return nil, fmt.Errorf("watch the migration: %w", err)
	}
	defer news.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the end of the migration: %w", context.Cause(ctx))
		case <-o.manager.Ended():
			return nil, o.manager.Alive()
		case event, open := <-news.ResultChan():
			dm, is := event.Object.(*migrationv1.DatastoreMigration)
			if !open || !is {
				return nil, fmt.Errorf("the watch of the migration has ended: %v", event.Object)
			}
			o.turns = turned(o.turns, dm.Status.Machine)
			switch dm.Status.Phase {
			case "", "Pending", "Migrating":
			case "Converged":
				return dm, nil
			default:
				return nil, fmt.Errorf("the migration is in phase %s: %s", dm.Status.Phase, dm.Status.Message)
			}
		}
	}
}

func turned(turns []turn, now v1alpha1.MachineStatus) []turn {
	if n := len(turns); n > 0 && turns[n-1].phase == now.Phase && turns[n-1].step == now.Step {
		return turns
	}
	return append(turns, turn{time.Now(), now.Phase, now.Step})
}

// figures are what only the manager's process tells.
func (o *ours) figures(n int) map[report.Metric]float64 {
	return map[report.Metric]float64{
		report.ManagerCPU: o.cpu.Seconds() * 1000 / float64(n),
		report.Peak:       float64(o.peak) / (1 << 20),
	}
}

// shown tells where the time went.
func (o *ours) shown() string {
	var b strings.Builder
	for _, s := range o.steps {
		fmt.Fprintf(&b, "\n  %-18s %6.0f ms in %d", s.action, s.took.Seconds()*1000, s.times)
	}
	return b.String()
}
