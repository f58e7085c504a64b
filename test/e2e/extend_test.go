package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Three pages of docs/extend at once, in a migration that goes all the way: a kind of our own, an approval
// by the command line, a look at another object before it counts as done.
func TestExtendedMigration(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(3, 300)})
	before := w.content(t)
	w.apply(t, "a-22nd-kind/crds.yaml")
	w.apply(t, "a-22nd-kind/sample.yaml")
	w.alsoGrant(t, "a-22nd-kind/rbac.yaml")
	const file = "phases/" + machineFile
	phases := patched(t, file, "approval-gate/gate.diff", "health-check/smoke-test.diff")
	kinds := patched(t, "resources/kinds.yaml", "a-22nd-kind/kinds.diff")
	w.manager(t, "--phases-dir", phases, "--kinds-file", filepath.Join(kinds, "kinds.yaml"))
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	// What a step past the lock needs is missed before it.
	w.awaitMessage(t, setup.MigrationName, "this account may not get cronjobs.batch smoke-test in namespace network-tests (needed by ReadObject)")
	w.alsoGrant(t, "health-check/rbac.yaml")

	t.Run("approval", func(t *testing.T) {
		w.await(t, setup.MigrationName, "AwaitingApproval")
		if !w.ready(t, "crd.projectcalico.org/v1") {
			t.Error("v1 is locked before anybody approved")
		}
		said := w.phasegate(t, "approve", setup.MigrationName, "--file", phases, "--wait")
		t.Log(said)
		dm := w.await(t, setup.MigrationName, "Converged")
		if token := dm.Annotations["phasegate.dev/approve"]; token == "" || token != dm.Annotations["phasegate.dev/approved"] {
			t.Errorf("annotations %v: the approval that was acted on is shown", dm.Annotations)
		}
	})
	t.Run("another kind", func(t *testing.T) {
		policy := w.get(t, v3, "BandwidthPolicy", "streaming")
		want := map[string]any{"tier": "default", "megabits": int64(200), "selector": `app == "player"`}
		if diff := cmp.Diff(want, policy.Object["spec"]); diff != "" {
			t.Errorf("its content (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"team": "media"}, policy.GetLabels()); diff != "" {
			t.Errorf("its labels (-want +got):\n%s", diff)
		}
		assertSameContent(t, before, w.content(t))
	})
	t.Run("health check", w.passSmokeTest)

	dm := w.await(t, setup.MigrationName, "Complete")
	if diff := cmp.Diff([]string{"Pending", "AwaitingApproval", "Migrating", "Converged", "SmokeTest", "Complete"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if p := dm.Status.Progress; p == nil || p.TypeProgress != "22 / 22" {
		t.Errorf("progress %+v, want 22 types", p)
	}
	w.remove(t, setup.MigrationName)
	assertNoCRDs(t, w, resources.V1Group)
	w.get(t, v3, "BandwidthPolicy", "streaming")
	assertSameContent(t, before, w.content(t))
}

// passSmokeTest leads a migration from Converged through the phase SmokeTest.
func (w *world) passSmokeTest(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "network-tests"}}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "smoke-test"}}
	suspended := true // the test says when it has passed
	cron.Spec = batchv1.CronJobSpec{Schedule: "*/5 * * * *", Suspend: &suspended}
	cron.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "ping", Image: "ping"}},
	}
	for _, obj := range []client.Object{namespace, cron} {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	w.passed(t, cron, time.Now().Add(-time.Hour)) // before the migration: it does not count
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	dm := w.awaitMessage(t, setup.MigrationName, "Waiting until CronJob network-tests/smoke-test succeeds; it did so last 20")
	assertAtRest(t, dm, "Reconciling")
	w.passed(t, cron, time.Now().Add(time.Second))
	w.await(t, setup.MigrationName, "Complete")
}

// passed is the CronJob controller after a successful Job.
func (w *world) passed(t *testing.T, cron *batchv1.CronJob, at time.Time) {
	t.Helper()
	before := cron.DeepCopy()
	cron.Status.LastSuccessfulTime = &metav1.Time{Time: at}
	if err := w.Client.Status().Patch(t.Context(), cron, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// apply does what the pages of docs/extend say: kubectl apply, and wait until a CRD is served.
func (w *world) apply(t *testing.T, file string) {
	t.Helper()
	w.kubectl(t, "apply", "-f", example(t, file))
	if strings.Contains(filepath.Base(file), "crd") {
		w.awaitEstablished(t, "-f", example(t, file))
	}
}

func assertNoCRDs(t *testing.T, w *world, group string) {
	t.Helper()
	if left := w.kubectl(t, "get", "customresourcedefinitions", "-o", fmt.Sprintf(`jsonpath={range .items[?(@.spec.group==%q)]}{.metadata.name}{"\n"}{end}`, group)); left != "" {
		t.Errorf("CRDs of %s that are left:\n%s", group, left)
	}
}
