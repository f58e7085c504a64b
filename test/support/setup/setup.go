// Package setup sets a Calico cluster up on the test control plane, as it is
// before a migration: CRDs of both groups, the components, v1 objects, the
// stand-in for the aggregated API server. The demo, the end-to-end tests and
// the benchmarks begin here; what happens then is theirs.
package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// CalicoNamespace is where the components are.
	CalicoNamespace = "calico-system"
	// MigrationName is the name that the peer's documents use.
	MigrationName = "v1-to-v3"
	// seedWorkers is how many objects are created at a time.
	seedWorkers = 32
)

// Options say what the scene has. The zero value is a whole cluster without v1
// objects.
type Options struct {
	Cluster harness.Options
	// Objects are the v1 objects; nil for none but built-in tiers and the lock.
	Objects []*unstructured.Unstructured
	// NoStandIn leaves the aggregated API server away: v3 is served from the CRDs.
	NoStandIn bool
	// Aggregated starts another server for v3.projectcalico.org in the place of the stand-in, and answers
	// what ends it; nil for the stand-in.
	Aggregated func(context.Context, *Setup) (end func() error, err error)
	// CRDs are Calico's; the zero Set stands for those of crds.Load.
	CRDs crds.Set
	// NoCRD leaves our own CRD away, which comes with the chart.
	NoCRD bool
	// BeforeStandIn is called while v3 is still served from its CRDs, so that it
	// can put objects there that the stand-in will hide; nil for nothing.
	BeforeStandIn func(context.Context, *Setup) error
	// Say is told what is going on; nil for silence.
	Say func(format string, args ...any)
}

// Setup is a cluster that waits for a migration.
type Setup struct {
	*harness.Cluster
	Registry *resources.Registry

	say       func(format string, args ...any)
	endServer func() error
}

// New sets the scene. The caller closes it, also after an error elsewhere.
func New(ctx context.Context, o Options) (*Setup, error) {
	o.Cluster.Types = append(o.Cluster.Types, migrationv1.AddToScheme, v1alpha1.AddToScheme)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	o.Say("starting etcd, kube-apiserver, controller-manager, scheduler and nodes")
	cluster, err := harness.Start(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	s := &Setup{Cluster: cluster, Registry: resources.Default(), say: o.Say, endServer: func() error { return nil }}
	if err := s.furnish(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ForTest is New for the duration of a test.
func ForTest(t testing.TB, o Options) *Setup {
	t.Helper()
	o.Cluster.Test = t.Name()
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("end the scene: %v", err)
		}
	})
	return s
}

// Close ends what New started. It may be called twice.
func (s *Setup) Close() error { return errors.Join(s.endServer(), s.Stop()) }

func (s *Setup) furnish(ctx context.Context, o Options) error {
	set, from := o.CRDs, "given"
	if len(set.CRDs) == 0 {
		var err error
		if set, err = crds.Load(s.Registry); err != nil {
			return err
		}
		from = source()
	}
	s.say("installing %d Calico CRDs of both groups (%s) and DatastoreMigration", len(set.CRDs), from)
	if err := crds.Install(ctx, s.Config, set); err != nil {
		return err
	}
	if !o.NoCRD {
		if err := s.installOurs(ctx); err != nil {
			return err
		}
	}
	objects := o.Objects
	if objects == nil {
		objects = append(fixture.BuiltinTiers(), fixture.ClusterInformation())
	}
	s.say("creating %d v1 objects", len(objects))
	if err := fixture.Create(ctx, s.Config, objects, seedWorkers); err != nil {
		return err
	}
	s.say("starting calico-node, typha and kube-controllers on simulated nodes")
	if err := s.components(ctx); err != nil {
		return err
	}
	if o.BeforeStandIn != nil {
		if err := o.BeforeStandIn(ctx, s); err != nil {
			return err
		}
	}
	if o.NoStandIn {
		return nil
	}
	s.say("registering the aggregated API server for v3.projectcalico.org")
	return s.aggregate(ctx, o)
}

// aggregate puts an API server in front of v3: a fake one, unless another is given.
func (s *Setup) aggregate(ctx context.Context, o Options) error {
	start := o.Aggregated
	if start == nil {
		start = func(ctx context.Context, s *Setup) (func() error, error) {
			return fakeapiserver.Start(ctx, s.Config, s.Registry)
		}
	}
	end, err := start(ctx, s)
	if err == nil {
		s.endServer = end
	}
	return err
}

func source() string {
	if dir := os.Getenv(crds.EnvDir); dir != "" {
		return "the real ones of " + dir
	}
	return "generated, permissive"
}

// installOurs applies the chart's CRDs, or the peers' in their place.
func (s *Setup) installOurs(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	driven, err := crds.Driven(root)
	if err != nil {
		return err
	}
	return crds.Install(ctx, s.Config, driven)
}

func (s *Setup) components(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: CalicoNamespace}}
	if err := s.Client.Create(ctx, ns); err != nil && !apierrs.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", CalicoNamespace, err)
	}
	for _, obj := range fixture.Components(CalicoNamespace) {
		if err := s.Client.Create(ctx, obj); err != nil && !apierrs.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

// StartManager runs bin/manager against the scene, with more arguments.
func (s *Setup) StartManager(args ...string) (*harness.Process, error) {
	return s.StartManagerOf("", args...)
}

// lookLate is how long a migration looks for late writes: no test but those of them has any.
const lookLate = "--request-timeout=1ms"

// StartManagerOf runs a program as the manager; empty: bin/manager.
func (s *Setup) StartManagerOf(path string, args ...string) (*harness.Process, error) {
	ours := path == ""
	if ours {
		var err error
		if path, err = harness.Binary("manager"); err != nil {
			return nil, err
		}
	}
	usual := []string{"--kubeconfig", s.Kubeconfig, "--calico-namespace", CalicoNamespace}
	if ours {
		usual = append(usual, lookLate)
	}
	return harness.StartProcess(harness.Program{Name: "manager", Path: path, LogDir: s.LogDir, Args: append(usual, args...)})
}

// Migrate creates a DatastoreMigration.
func (s *Setup) Migrate(ctx context.Context, name string) error {
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	dm.Spec.Type = migrationv1.APIServerToCRDs
	if err := s.Client.Create(ctx, dm); err != nil {
		return fmt.Errorf("create DatastoreMigration %s: %w", name, err)
	}
	return nil
}

// Migration reads a DatastoreMigration, with its state in place of the view. The view
// follows the state within moments while a manager runs, which are waited for.
func (s *Setup) Migration(ctx context.Context, name string) (*migrationv1.DatastoreMigration, error) {
	for begun := time.Now(); ; {
		dm := &migrationv1.DatastoreMigration{}
		if err := s.Client.Get(ctx, types.NamespacedName{Name: name}, dm); err != nil {
			return dm, err
		}
		shown := dm.Status.Machine.Phase
		states, err := machinestate.Get(ctx, s.Client, datastoremigration.MachineName, dm.UID)
		if err == nil {
			_, err = states.Over(dm, dm.UID)
		}
		if ready := meta.FindStatusCondition(dm.Status.Conditions, fsm.ConditionReady); ready != nil && dm.Status.ObservedGeneration == 0 {
			dm.Status.ObservedGeneration = ready.ObservedGeneration // which Calico's CRD has no place for
		}
		if err != nil || shown == "" || shown == dm.Status.Machine.Phase || time.Since(begun) > viewFollows {
			return dm, err
		}
		<-time.After(lookAgain)
	}
}

// viewFollows is how long a view may be behind its state before it is taken as it is: no
// manager runs then. lookAgain is how long to leave the API server alone in between.
const (
	viewFollows = time.Second
	lookAgain   = 10 * time.Millisecond
)

// AwaitPhase waits until a migration shows a phase; one that its CRD has no word for begins the message.
func (s *Setup) AwaitPhase(ctx context.Context, name, phase string, timeout time.Duration) (*migrationv1.DatastoreMigration, error) {
	var dm *migrationv1.DatastoreMigration
	err := harness.Await(ctx, fmt.Sprintf("%s in phase %s", name, phase), timeout, func(ctx context.Context) (err error) {
		if dm, err = s.Migration(ctx, name); err != nil {
			return err
		}
		if dm.Status.Phase != phase && !strings.HasPrefix(dm.Status.Message, phase+": ") {
			return fmt.Errorf("phase %q, step %q: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Message)
		}
		return nil
	})
	return dm, err
}

// AwaitGone waits until an object does not exist any more.
func (s *Setup) AwaitGone(ctx context.Context, obj client.Object, timeout time.Duration) error {
	return harness.Await(ctx, obj.GetName()+" to be gone", timeout, func(ctx context.Context) error {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if apierrs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is still there")
	})
}
