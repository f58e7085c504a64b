package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/rights"
	"github.com/phasegate/phasegate/test/harness"
	"github.com/phasegate/phasegate/test/scene"
	"github.com/phasegate/phasegate/test/sides"
)

type migration = migrationv1.DatastoreMigration

// account is the manager's: it has what the chart grants, and nothing else.
const account = "phasegate-manager"

// leaseName is the lease of managers that share one.
const leaseName = "processes"

// world is a cluster and the words in which the experiments speak of it. Each of them
// ends the test when it fails.
type world struct {
	*scene.Scene
	before snapshot
}

// grant gives the manager its rights, those of the lease included.
func (w *world) grant(t *testing.T) {
	t.Helper()
	rules, err := harness.ChartRules("datastoremigration", "datastoremigration-cleanup", "datastoremigration-dependents", "custom")
	if err != nil {
		t.Fatal(err)
	}
	rules = append(rules, rights.Rule("create", "coordination.k8s.io", "leases"),
		rights.Rule("get update", "coordination.k8s.io", "leases", leaseName), rights.Rule("create patch", "", "events"))
	if err := w.Grant(t.Context(), account, rules); err != nil {
		t.Fatal(err)
	}
}

// manager runs bin/manager until the test ends.
func (w *world) manager(t *testing.T, args ...string) *harness.Process {
	t.Helper()
	return w.managerAt(t, w.KubeconfigOf(account), args...)
}

func (w *world) managerAt(t *testing.T, kubeconfig string, args ...string) *harness.Process {
	t.Helper()
	p, err := w.StartManager(append([]string{"--kubeconfig", kubeconfig, "--controllers", "datastoremigration"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the manager said:\n%s", p.Tail(40))
		}
		p.Kill()
	})
	return p
}

// start creates a migration.
func (w *world) start(t *testing.T, annotations map[string]string) {
	t.Helper()
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: scene.MigrationName, Annotations: annotations}}
	dm.Spec.Type = migrationv1.APIServerToCRDs
	if err := w.Client.Create(t.Context(), dm); err != nil {
		t.Fatal(err)
	}
}

// until waits until the migration meets something; it is nil where there is none.
func (w *world) until(t *testing.T, what string, met func(*migration) bool) *migration {
	t.Helper()
	var dm *migration
	harness.Eventually(t, what, soon, func() (err error) {
		dm, err = w.Migration(t.Context(), scene.MigrationName)
		if apierrs.IsNotFound(err) {
			dm, err = nil, nil
		}
		if err != nil || met(dm) {
			return err
		}
		if dm == nil {
			return fmt.Errorf("there is no migration")
		}
		return fmt.Errorf("phase %q, step %q, held %v: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Machine.Held, dm.Status.Message)
	})
	return dm
}

func isGone(dm *migration) bool { return dm == nil }

func inPhase(name string) func(*migration) bool {
	return func(dm *migration) bool { return dm != nil && dm.Status.Machine.Phase == name }
}

func atGate(name string) func(*migration) bool {
	return func(dm *migration) bool { return dm != nil && dm.Status.Machine.Step == name }
}

// underTheLock waits for a random moment of the locked window.
func (w *world) underTheLock(t *testing.T, random *rand.Rand) {
	t.Helper()
	moments := []func(*migration) bool{inPhase("Migrating")}
	for _, effect := range []string{"v1Lock", "apiService", "v3Lock", "v3Copies"} {
		moments = append(moments, func(dm *migration) bool { return dm != nil && slices.Contains(dm.Status.Machine.Held, effect) })
	}
	w.until(t, "a moment of the locked window", moments[random.IntN(len(moments))])
	pause(upTo(random, 400*time.Millisecond))
}

// remove asks for the removal, as `kubectl delete --wait=false` does.
func (w *world) remove(t *testing.T) {
	t.Helper()
	if err := w.Client.Delete(t.Context(), &migration{ObjectMeta: metav1.ObjectMeta{Name: scene.MigrationName}}); err != nil {
		t.Fatal(err)
	}
}

// giveBack removes the migration, and checks that nothing is left of it.
func (w *world) giveBack(t *testing.T) {
	t.Helper()
	w.remove(t)
	w.until(t, "the migration to be gone", isGone)
	w.assertUntouched(t)
}

// assertCopied compares v3 with v1 at the gate before the point of no return, value by
// value, and looks at the way that the migration came.
func (w *world) assertCopied(t *testing.T, dm *migration) {
	t.Helper()
	if diff := cmp.Diff([]string{"Pending", "Migrating"}, way(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	w.assertSameSides(t)
}

func (w *world) assertSameSides(t *testing.T) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	reader := sides.Reader{Client: dyn, Registry: w.Registry}
	v1, err := reader.V1(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v3, err := reader.V3(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := sides.Compare(v1, v3); !c.Equal() || len(v1) < objects {
		t.Errorf("of %d objects in v1 are missing in v3 %v, different %v; too much is %v", len(v1), c.Missing, c.Different, c.Extra)
	}
}

// way are the phases that a migration came through.
func way(dm *migration) []string {
	var names []string
	for _, h := range dm.Status.Machine.History {
		names = append(names, h.To)
	}
	return names
}

// kubeconfig writes another one for the manager's account, with a token of its own: what
// it is used for can be told from the audit log by its id.
func (w *world) kubeconfig(t *testing.T, path string) {
	t.Helper()
	err := w.WriteKubeconfig(context.WithoutCancel(t.Context()), path, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: account}, nil)
	if err != nil {
		t.Fatal(err)
	}
}
