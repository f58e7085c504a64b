package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// evening is the name of the migration of the story.
const evening = "to-v3"

// TestAtTheTerminal is an evening at the terminal, with nothing but kubectl and its plugin: a migration that
// is stuck three times, is aborted, loses its manager under the lock, and comes to its end. What helps is typed as the plugin
// has printed it.
func TestAtTheTerminal(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(5, 60)})
	w.obstruct(t)
	manager := w.manager(t, "--phases-dir", gated(t))
	chapters := []struct {
		title string
		tell  func(*testing.T, *world)
	}{
		{"a missing right", missingRight},
		{"a conflict", stuckInConflict},
		{"closed by hand", closedByHand},
		{"no manager under the lock", func(t *testing.T, w *world) {
			w.do(t, manager.Stop(harness.Patience))
			brokenGlass(t, w)
		}},
		{"a manager comes back", func(inner *testing.T, w *world) {
			w.manager(t) // until the story ends
			w.awaitGone(inner, evening)
		}},
		{"calico-node is not rolled", notRolled},
		{"clean up", cleanedUp},
	}
	for _, c := range chapters {
		inTurn(t, c.title, func(t *testing.T) { c.tell(t, w) })
	}
}

// exits runs kubectl phasegate where nobody can be asked, and checks its exit code and what it says.
func (w *world) exits(t *testing.T, code int, args string, parts ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "bin", "kubectl-phasegate"), strings.Fields(args)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("kubectl phasegate %s\n%s", args, out)
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("kubectl phasegate %s exits with %d, want %d", args, got, code)
	}
	for _, part := range parts {
		if !strings.Contains(string(out), part) {
			t.Errorf("kubectl phasegate %s does not say %q", args, part)
		}
	}
	return string(out)
}

// assertDescribed checks that describe, within its lines, has all that somebody needs who is stuck.
func (w *world) assertDescribed(t *testing.T, parts ...string) {
	t.Helper()
	text := w.assertReadable(t, evening)
	if onPeersCRDs { // which keep phase, message and conditions; the rest is the state's to tell
		text += w.assertStateReadable(t, evening)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("kubectl describe does not say %q:\n%s", part, text)
		}
	}
}

func missingRight(t *testing.T, w *world) {
	w.said(t, "kubectl phasegate --help", 0, "kubectl phasegate [command]", "status", "conflicts", "plan")
	w.said(t, "kubectl phasegate status", 2)
	w.said(t, "kubectl phasegate plan", 0, "GlobalNetworkSet", "conflicts cannot be seen yet", "v1 would be locked for about")
	w.revoke(t, resources.V3Group, "*", "create")
	w.start(t, evening, nowhere)
	w.awaitMessage(t, evening, "rights: ")
	w.assertDescribed(t, "Pending", "Preflight", "may not create bgpconfigurations.projectcalico.org (needed by BringLateWrites, CopyResources)",
		"grant it with the manager's ClusterRole", ofOurs("On Delete:"), ofOurs("Aborting"))
	stuck := w.said(t, "kubectl phasegate status", 0, "‼ [Pending]", "this account may not create bgpconfigurations.projectcalico.org",
		ofOurs("step Preflight waits: result.blockers.size() == 0"))
	w.said(t, advised(t, stuck, "fix what the message names")+" --as system:nobody", 1)
	w.restoreRights(t)
}

func stuckInConflict(t *testing.T, w *world) {
	w.await(t, evening, waiting)
	w.awaitMessage(t, evening, "resolve 1 conflict")
	w.assertDescribed(t, waiting, "blocklist-0", "edit or delete one side", "ConflictsFound", ofOurs("Aborting"), "Deadline:")
	columns := strings.Join(strings.Fields(w.kubectl(t, "get", "datastoremigrations", evening)), " ")
	want := "NAME PHASE READY PROGRESS LOCKED CONFLICTS AGE " + evening + " " + waiting + " False "
	if onPeersCRDs {
		want = "NAME PHASE TYPES MESSAGE AGE " + evening + " " + waiting + " 21 / 21 resolve 1 conflict"
	} else {
		w.kubectl(t, "get", "dsm", evening) // the short name is ours
	}
	if !strings.HasPrefix(columns, want) {
		t.Errorf("kubectl get shows %q, want it to begin with %q", columns, want)
	}
	stuck := w.said(t, "kubectl phasegate status -w", 4, "‼ [WaitingForConflictResolution]", "GlobalNetworkSet blocklist-0")
	conflicts := advised(t, stuck, "see both sides of each conflict")
	w.said(t, conflicts+" --diff", 4, "GlobalNetworkSet blocklist-0", "--- v1", "+  - 192.0.2.99/32",
		"kubectl delete globalnetworksets.v3precopy.projectcalico.org blocklist-0")
	w.said(t, conflicts+" -o jsonpath='{.conflicts[0].fields[*].path}'", 4, "spec.nets")
	bundled(t, w)
	w.exits(t, 1, "cleanup", "nothing to clean up before Complete", "run: kubectl phasegate abort "+evening)
	w.exits(t, 2, "abort --wait", "sideDoor ", "give --yes")
	w.await(t, evening, waiting)
	w.exits(t, 0, "abort --wait --yes", "abort done")
	w.awaitGone(t, evening)
	if diff := cmp.Diff([]string{"globalnetworksets/blocklist-0"}, w.stored(t)); diff != "" {
		t.Errorf("what is left in v3 (-want +got): the object that was there before stays\n%s", diff)
	}
}

// planted is in every place that the bundle reads, and may not be in it.
const planted = "pl4nted-s3cret-of-somebody"

func bundled(t *testing.T, w *world) {
	t.Helper()
	w.annotate(t, evening, map[string]string{"example.com/note": planted})
	labels := map[string]string{"app.kubernetes.io/name": "phasegate"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"example.com/note": planted}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "manager", Image: "example.com/manager", Args: []string{"--password=" + planted}, Env: []corev1.EnvVar{{Name: "TOKEN", Value: planted}},
		}}}}
	meta := metav1.ObjectMeta{Name: "phasegate-planted", Namespace: metav1.NamespaceDefault, Labels: labels}
	w.do(t, w.Client.Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}}))
	w.do(t, w.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": planted}}))
	w.do(t, w.Client.Create(t.Context(), &corev1.Event{ObjectMeta: meta, Reason: "Told", Message: "it was " + planted, Type: corev1.EventTypeNormal,
		InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Name: meta.Name, Namespace: meta.Namespace}}))
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	// What kwok pretends to run has no logs: so something is missing, and said.
	w.exits(t, 1, "support-bundle -f "+file+" --redact-names", "files", "missing.json")
	all := unpack(t, file)
	for _, part := range []string{"/migrations/" + evening + ".json", "/events.json", "/crds.json", "/calico.json", "/checks.json", "/versions.json", "phasegate-planted.json", "example.com/note"} {
		if !strings.Contains(all, part) {
			t.Errorf("the bundle does not hold %s", part)
		}
	}
	for _, secret := range []string{planted, "blocklist-0", "192.0.2.99"} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("the bundle holds %s: …%s…", secret, all[max(0, i-200):min(len(all), i+100)])
		}
	}
}

// unpack is everything that an archive holds: names and content.
func unpack(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for archive := tar.NewReader(zipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(head.Name + "\n")
		if _, err := io.Copy(&all, archive); err != nil {
			t.Fatal(err)
		}
	}
}

func closedByHand(t *testing.T, w *world) {
	w.exits(t, 2, "lock", "give --yes")
	w.exits(t, 0, "lock --yes", "done: close v1")
	w.exits(t, 0, "lock --yes", "closed already")
	if w.ready(t, v1) {
		t.Error("v1 is open after lock")
	}
	w.start(t, evening, "locked")
	w.awaitMessage(t, evening, "a person closed it (kubectl phasegate lock: ")
	w.exits(t, 1, "lock --yes", evening+" is in phase Pending")
	w.exits(t, 0, "unlock --yes", "done: open v1")
	w.exits(t, 0, "unlock", "the datastore is open", "nothing to do")
	w.await(t, evening, waiting) // for the one of before: v3 is to be right now
	w.said(t, advised(t, w.said(t, "kubectl phasegate conflicts "+evening, 4), "keep v3:"), 0)
	w.awaitGate(t, evening, "locked")
	w.said(t, "kubectl phasegate conflicts "+evening, 0, "No conflicts")
}

func brokenGlass(t *testing.T, w *world) {
	w.exits(t, 1, "unlock --yes", evening+" has closed v1 at ", "kubectl phasegate abort "+evening, "--force")
	if w.ready(t, v1) {
		t.Error("v1 is open after an unlock that was refused")
	}
	w.exits(t, 0, "unlock --force --yes", "done: delete the migration", "done: lift the fence", "done: open v1")
	w.exits(t, 0, "unlock --force --yes", "nothing to do")
	if !w.ready(t, v1) {
		t.Error("v1 is closed after unlock --force")
	}
	w.do(t, w.Client.Create(t.Context(), feed("while-no-manager-runs")))
}

// notRolled types the path for manifests with Calico's API server as docs/operate/migrate.md has it, from a calico-config as
// Calico ships it.
func notRolled(t *testing.T, w *world) {
	w.setCNITemplate(t, fixture.CNITemplate(""))
	w.followPage(t, "First let the CNI plugin follow")
	w.awaitMessage(t, evening, "calico-node")
	w.assertDescribed(t, "Converged", "ObserveRollout", "CALICO_API_GROUP=projectcalico.org/v3", "calico-node", ofOurs("cannot be rolled back"), "Deadline:")
	w.exits(t, 1, "abort --yes", "past the point of no return", "kubectl phasegate status "+evening+" -w")
	w.exits(t, 1, "cleanup --yes", "wait for Complete")
	w.exits(t, 0, "unlock", "v1 is closed for good")
	stuck := w.said(t, "kubectl phasegate status --tree", 0, "● [Converged]", "calico-node (variable not set)", "CALICO_API_GROUP=projectcalico.org/v3", ofOurs("IPPool"))
	w.said(t, advised(t, stuck, "let Calico's components use v3"), 0)
	w.followPage(t, "Then let the components use v3")
	w.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Complete", "--timeout="+harness.Patience.String(), "datastoremigration/"+evening)
	w.assertDescribed(t, "Complete", ofOurs("CleaningUp"))
	w.said(t, "kubectl phasegate status "+evening+" -w --timeout 3m", 0, "✓ [Complete]", "kubectl phasegate cleanup "+evening)
	w.dashboardShows(t, "<title>Complete: "+evening)
	completed(t, w)
}

// completed is what scripts and the shell ask for. Whoever may get this object sees all of it.
func completed(t *testing.T, w *world) {
	t.Helper()
	get := []rbacv1.PolicyRule{{APIGroups: []string{"migration.projectcalico.org"}, Resources: []string{"datastoremigrations"}, ResourceNames: []string{evening}, Verbs: []string{"get"}}}
	w.do(t, w.Grant(t.Context(), "reader", get))
	w.said(t, "KUBECONFIG="+w.KubeconfigOf("reader")+" kubectl phasegate status "+evening+" -o jsonpath='{.phase} {.progress.done}'", 0, "Complete ")
	w.said(t, "KUBECONFIG="+w.KubeconfigOf("reader")+" kubectl phasegate status", 2)
	w.said(t, "kubectl phasegate status -o name", 0, "datastoremigration.migration.projectcalico.org/"+evening)
	w.said(t, "kubectl __complete phasegate sta", 0, "status\t")
	w.said(t, "kubectl __complete phasegate status ''", 0, evening+"\n")
	w.said(t, "kubectl __complete phasegate conflicts --con", 0, "--context")
}

func cleanedUp(t *testing.T, w *world) {
	w.exits(t, 1, "abort --yes", "kubectl phasegate cleanup "+evening)
	w.exits(t, 2, "cleanup", "backup-of="+evening, "v1 CRDs", "give --yes")
	w.exits(t, 0, "cleanup --yes --wait", "clean-up done")
	w.exits(t, 0, "unlock", "the datastore is open")
	w.exits(t, 0, "lock --yes", "done: close v3")
	w.exits(t, 0, "unlock --yes", "done: open v3")
}
