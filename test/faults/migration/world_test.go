package migration_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

type migration = migrationv1.DatastoreMigration

const (
	// retryAfter is the pause after a pass that failed.
	retryAfter = 100 * time.Millisecond
	// account has the rights of the chart, and no others.
	account = "phasegate-faults"
)

// world is a cluster, and the lives of the processes that migrate it.
type world struct {
	*setup.Setup
	t       *testing.T
	machine *fsm.Machine
	config  *rest.Config // of the account
	eye     invariants.Eye
	// before is what everything was before the first migration.
	before *invariants.State
	// clean is how many writes a migration takes when nothing is in its way; 0: not known yet.
	clean int
}

// newWorld furnishes a cluster. The caller closes it.
func newWorld(o setup.Options, machine *fsm.Machine) (*world, error) {
	ctx := context.Background() // it may outlive a test
	o.Cluster.Own = true
	s, err := setup.New(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &world{Setup: s, machine: machine}
	if err := w.settle(ctx); err != nil {
		return nil, fmt.Errorf("%w (and close the scene: %w)", err, s.Close())
	}
	return w, nil
}

func (w *world) settle(ctx context.Context) error {
	rules, err := harness.MigrationRules()
	if err != nil {
		return err
	}
	// What depends on Calico's objects may be of any kind; which ones it may be is said by whoever installs the chart.
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"patch"}})
	if err := w.Grant(ctx, account, rules); err != nil {
		return err
	}
	if w.config, err = clientcmd.BuildConfigFromFlags("", w.KubeconfigOf(account)); err != nil {
		return err
	}
	w.config.QPS = -1
	dynamicClient, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		return err
	}
	w.eye = invariants.Eye{Client: dynamicClient, Registry: w.Registry, Stored: w.Stored}
	if err := w.addSentinels(ctx); err != nil {
		return err
	}
	w.before, err = w.eye.Look(ctx)
	return err
}

// process is what a new process of the manager has: nothing but the API server,
// behind faults.
func (w *world) process(living context.Context, faulty *faults.Transport) *runner.Reconciler[*migration] {
	w.t.Helper()
	config := rest.CopyConfig(w.config)
	config.Wrap(faulty.Wrap)
	c, err := client.New(config, client.Options{Scheme: datastoremigration.NewScheme(), Mapper: w.Client.RESTMapper()})
	if err != nil {
		w.t.Fatal(err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	watches, err := metadata.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return &runner.Reconciler[*migration]{
		Client: c, Machine: func() *fsm.Machine { return w.machine },
		Program: datastoremigration.Program(c, datastoremigration.Settings{
			RequestTimeout: time.Millisecond,
			Registry:       w.Registry, CalicoNamespace: setup.CalicoNamespace, Discovery: api, Metadata: watches, Ending: living.Done()}),
		Clock: clock.RealClock{}, Recorder: &events.FakeRecorder{}, Metrics: runner.NewMetrics(prometheus.NewRegistry()),
		Shape: w.shape, States: runnertest.States(w.Client, datastoremigration.MachineName),
	}
}

// drive lets one process work until the migration is where it should be, and tells
// whether it came there: it may crash before.
func (w *world) drive(faulty *faults.Transport, where func(*migration) bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), longest())
	defer cancel()
	defer time.AfterFunc(longest()-time.Second, func() { // who hangs, and in what?
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}).Stop()
	living := untilDown(ctx, faulty)
	p := w.process(living, faulty)
	req := reconcile.Request{NamespacedName: client.ObjectKey{Name: setup.MigrationName}}
	for {
		result, err := p.Reconcile(living, req)
		if faulty.Crashed() {
			<-faulty.Down()
			return false
		}
		if err == nil && result.RequeueAfter > 0 && result.RequeueAfter <= time.Millisecond {
			continue
		}
		dm := w.read()
		if err == nil && where(dm) {
			return true
		}
		if result.RequeueAfter == 0 {
			result.RequeueAfter = retryAfter // it failed, or something that is watched would wake a real one
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("not within %s: %v; %s", longest(), err, describe(dm))
		case <-time.After(min(result.RequeueAfter, patience)):
		}
	}
}

// longest is how long a process may drive a migration. With something in the way of each write that is minutes.
func longest() time.Duration {
	if everything {
		return 5 * harness.Patience
	}
	return harness.Patience
}

// untilDown ends when the process is cut off: what is gone does not go on trying.
func untilDown(ctx context.Context, faulty *faults.Transport) context.Context {
	living, die := context.WithCancel(ctx)
	go func() {
		defer die()
		select {
		case <-faulty.Down():
		case <-ctx.Done():
		}
	}()
	return living
}

func describe(dm *migration) string {
	if dm == nil {
		return "the migration is gone"
	}
	m := dm.Status.Machine
	return fmt.Sprintf("it is in %s, step %s, holds %v: %s", m.Phase, m.Step, m.HeldNames(), dm.Status.Message)
}

// patience bounds pauses that a watch or another person would end.
const patience = 2 * time.Second

// read is nil when the migration is gone.
func (w *world) read() *migration {
	w.t.Helper()
	dm, err := w.Migration(w.t.Context(), setup.MigrationName)
	if apierrs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return dm
}

func (w *world) askRemoval() error {
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: setup.MigrationName}}
	return client.IgnoreNotFound(w.Client.Delete(context.Background(), dm))
}

// look reads everything.
func (w *world) look() *invariants.State {
	w.t.Helper()
	state, err := w.eye.Look(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func gone(dm *migration) bool { return dm == nil }

func inPhase(phases ...string) func(*migration) bool {
	return func(dm *migration) bool {
		return dm != nil && strings.Contains(" "+strings.Join(phases, " ")+" ", " "+dm.Status.Machine.Phase+" ")
	}
}

func atGate(dm *migration) bool { return dm != nil && dm.Status.Message == gateMessage }
