package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

type migration = migrationv1.DatastoreMigration

// account is the manager's: it has what the chart grants, and nothing else.
const account = "phasegate-manager"

// leaseName is the lease of managers that share one.
const leaseName = "processes"

// world is a cluster and the words in which the experiments speak of it. Each of them
// ends the test when it fails.
type world struct {
	*setup.Setup
	dynamic dynamic.Interface
	// before is everything before the first migration.
	before *invariants.State
	// spent is set by a run after which the cluster is not what it was.
	spent bool
}

// grant gives the manager its rights, those of the lease included.
// grant gives the account of the manager the rights of the chart, and more.
func (w *world) grant(t *testing.T, more ...rbacv1.PolicyRule) {
	t.Helper()
	rules, err := harness.MigrationRules()
	if err != nil {
		t.Fatal(err)
	}
	rules = append(rules, rbac.Rule("create", "coordination.k8s.io", "leases"),
		rbac.Rule("get update", "coordination.k8s.io", "leases", leaseName), rbac.Rule("create patch", "", "events"))
	if err := w.Grant(t.Context(), account, append(rules, more...)); err != nil {
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
	p, err := w.launch(kubeconfig, args...)
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

func (w *world) launch(kubeconfig string, args ...string) (*harness.Process, error) {
	return w.StartManager(append([]string{"--kubeconfig", kubeconfig, "--controllers", "datastoremigration"}, args...)...)
}

// start creates a migration.
func (w *world) start(t *testing.T, annotations map[string]string) {
	t.Helper()
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: setup.MigrationName, Annotations: annotations}}
	dm.Spec.Type = migrationv1.APIServerToCRDs
	if err := w.Client.Create(t.Context(), dm); err != nil {
		t.Fatal(err)
	}
}

// until waits until the migration meets something; it is nil where there is none.
func (w *world) until(t *testing.T, what string, met func(*migration) bool) *migration {
	t.Helper()
	var dm *migration
	harness.Eventually(t, what, func() (err error) {
		dm, err = w.Migration(t.Context(), setup.MigrationName)
		if apierrs.IsNotFound(err) {
			dm, err = nil, nil
		}
		if err != nil || met(dm) {
			return err
		}
		if dm == nil {
			return fmt.Errorf("there is no migration")
		}
		return fmt.Errorf("phase %q, step %q, held %v: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Machine.HeldNames(), dm.Status.Message)
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
		moments = append(moments, func(dm *migration) bool { return dm != nil && dm.Status.Machine.IsHeld(effect) })
	}
	w.until(t, "a moment of the locked window", moments[random.IntN(len(moments))])
	pause(upTo(random, 400*time.Millisecond))
}

// remove asks for the removal, as `kubectl delete --wait=false` does.
func (w *world) remove(t *testing.T) {
	t.Helper()
	if err := w.Client.Delete(t.Context(), &migration{ObjectMeta: metav1.ObjectMeta{Name: setup.MigrationName}}); err != nil {
		t.Fatal(err)
	}
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
