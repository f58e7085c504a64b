package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	phasegatev1alpha1 "github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// world is a cluster and the words in which the tests speak of it. Each of them
// ends the test when it fails.
type world struct {
	*setup.Setup
	before snapshot
}

// manager runs bin/manager with exactly the rights of the chart until the test ends.
func (w *world) manager(t *testing.T, args ...string) *harness.Process {
	t.Helper()
	return w.managerAs(t, managerAccount, args...)
}

func (w *world) managerAs(t *testing.T, account string, args ...string) *harness.Process {
	t.Helper()
	return w.managerOf(t, "", account, args...)
}

// managerOf runs another program as the manager; empty: bin/manager.
func (w *world) managerOf(t *testing.T, program, account string, args ...string) *harness.Process {
	t.Helper()
	p, err := w.StartManagerOf(program, append([]string{"--kubeconfig", w.KubeconfigOf(account), "--controllers", "datastoremigration,custom"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the manager said:\n%s", p.Tail(25))
		}
		if err := p.Alive(); err == nil {
			if err := p.Stop(20 * time.Second); err != nil && !t.Failed() {
				t.Errorf("the manager does not end as asked: %v", err)
			}
		}
	})
	return p
}

// start creates a migration; at a gated machine it waits at the named gate.
func (w *world) start(t *testing.T, name, stopAt string) {
	t.Helper()
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{openGates: gatesBefore(stopAt)},
	}}
	dm.Spec.Type = migrationv1.APIServerToCRDs
	if err := w.Client.Create(t.Context(), dm); err != nil {
		t.Fatal(err)
	}
}

// annotate sets annotations of a migration, as `kubectl annotate --overwrite` does.
func (w *world) annotate(t *testing.T, name string, set map[string]string) {
	t.Helper()
	dm := w.read(t, name)
	before := dm.DeepCopy()
	if dm.Annotations == nil {
		dm.Annotations = map[string]string{}
	}
	maps.Copy(dm.Annotations, set)
	if err := w.Client.Patch(t.Context(), dm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) read(t *testing.T, name string) *migrationv1.DatastoreMigration {
	t.Helper()
	dm, err := w.Migration(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return dm
}

// await waits until a migration shows a phase, and checks what must always hold.
func (w *world) await(t *testing.T, name, phase string) *migrationv1.DatastoreMigration {
	t.Helper()
	dm, err := w.AwaitPhase(t.Context(), name, phase, harness.Patience)
	if err != nil {
		t.Fatal(err)
	}
	assertSound(t, dm)
	return dm
}

// awaitGate waits until a migration stands at a gate of a gated machine.
func (w *world) awaitGate(t *testing.T, name, gate string) *migrationv1.DatastoreMigration {
	t.Helper()
	return w.awaitStatus(t, name, "at gate "+gate, func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Machine.Step == gateStep(gate) && strings.HasSuffix(dm.Status.Message, gateMessage(gate)) // behind the phase where status.phase shows another
	})
}

func (w *world) awaitMessage(t *testing.T, name, part string) *migrationv1.DatastoreMigration {
	t.Helper()
	return w.awaitStatus(t, name, "saying "+part, func(dm *migrationv1.DatastoreMigration) bool {
		return strings.Contains(dm.Status.Message, part)
	})
}

func (w *world) awaitStatus(t *testing.T, name, what string, met func(*migrationv1.DatastoreMigration) bool) *migrationv1.DatastoreMigration {
	t.Helper()
	var dm *migrationv1.DatastoreMigration
	harness.Eventually(t, name+" "+what, func() (err error) {
		if dm, err = w.Migration(t.Context(), name); err != nil {
			return err
		}
		if !met(dm) {
			return fmt.Errorf("phase %q, step %q: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Message)
		}
		return nil
	})
	assertSound(t, dm)
	return dm
}

// remove deletes a migration and waits until it is gone.
func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	w.askRemoval(t, name)
	w.awaitGone(t, name)
}

// waive waives a check for the migration of this name that is there now.
func (w *world) waive(t *testing.T, name, id string) {
	t.Helper()
	w.annotate(t, name, map[string]string{migrationv1.AnnotationWaive: migrationv1.Waiver(id, w.read(t, name).UID)})
}

func (w *world) askRemoval(t *testing.T, name string) {
	t.Helper()
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Client.Delete(t.Context(), dm); err != nil {
		t.Fatal(err)
	}
}

func (w *world) awaitGone(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, name+" to be gone", func() error {
		dm, err := w.Migration(t.Context(), name)
		if apierrs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("phase %q, step %q, held %v: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Machine.HeldNames(), dm.Status.Message)
	})
}

// kubectl runs the real one and returns what it printed.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return w.run(t, filepath.Join("tools", "kubectl"), args...)
}

// phasegate runs our own command line and returns what it printed.
func (w *world) phasegate(t *testing.T, args ...string) string {
	t.Helper()
	return w.run(t, "kubectl-phasegate", args...)
}

// awaitEstablished waits until CRDs are served. kubectl wait ends in an error where the API server has not written a condition
// yet, so that it is called again.
func (w *world) awaitEstablished(t *testing.T, crds ...string) {
	t.Helper()
	harness.Eventually(t, "CRDs to be established", func() error {
		if _, errs, code := w.typed(t, "kubectl wait --for=condition=Established --timeout=10s "+strings.Join(crds, " ")); code != 0 {
			return errors.New(errs)
		}
		return nil
	})
}

// run runs a program of bin against the cluster.
func (w *world) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience) // also when the test cleans up
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "bin", program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// readable is how many lines kubectl describe may print in any state.
const readable = 60

// assertReadable checks that describe tells the story in so many lines.
func (w *world) assertReadable(t *testing.T, name string) string {
	t.Helper()
	return w.describe(t, "datastoremigration", name)
}

// assertStateReadable is assertReadable for what the manager remembers of a migration.
func (w *world) assertStateReadable(t *testing.T, name string) string {
	t.Helper()
	return w.describe(t, "machinestate", phasegatev1alpha1.MachineStateName(datastoremigration.MachineName, w.read(t, name).UID))
}

func (w *world) describe(t *testing.T, kind, name string) string {
	t.Helper()
	text := w.kubectl(t, "describe", kind, name)
	lines := strings.Count(text, "\n")
	t.Logf("kubectl describe %s prints %d lines", kind, lines)
	if lines > readable {
		t.Errorf("kubectl describe %s prints %d lines, more than %d:\n%s", kind, lines, readable, text)
	}
	return text
}

// exits runs the manager until it ends by itself; code is its exit code.
func exits(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	path, err := harness.Binary("manager")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return exit.ExitCode(), string(out)
}

// failedTimes is met when a migration has failed so often, and stands there.
func failedTimes(n int) func(*migrationv1.DatastoreMigration) bool {
	return func(dm *migrationv1.DatastoreMigration) bool {
		count := 0
		for _, h := range dm.Status.Machine.History {
			if h.To == "Failed" {
				count++
			}
		}
		return dm.Status.Phase == "Failed" && count == n
	}
}

// nilIf is an error unless what was waited for has come.
func nilIf(met bool) error {
	if met {
		return nil
	}
	return errors.New("not yet")
}

// inTurn runs a case on a cluster that it shares with others. The first that fails is the last.
func inTurn(t *testing.T, name string, run func(*testing.T)) {
	t.Helper()
	if !t.Run(name, run) {
		t.Fatal("the cluster is not fit for the other cases")
	}
}
