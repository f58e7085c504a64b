package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// The path for the Tigera operator is typed as docs/operate/migrate.md has it, while somebody writes v1 without a pause, until
// v3 is open. Then a clean-up deletes nothing that was written since
// the verification, until a person says so, and comes to its end whatever Calico's webhooks refuse; what it deletes comes back from its backup, with the commands of
// the documents. The parts build on each other.
func TestCleanUpAndRestore(t *testing.T) {
	const name = "to-v3" // as the documents have it
	w := own(t, setup.Options{Objects: fixture.Demo(3, objects)})
	log, end := w.writing(t)
	switched := w.operator(t, name)
	w.manager(t)
	w.followPage(t, "The operator reads the first DatastoreMigration")
	w.do(t, <-switched)
	w.assertKeptOut(t, log, end)
	w.await(t, name, "Complete")
	ended := "payments" // its objects go on both sides, and are no reason to keep v1
	if len(w.inNamespace(t, ended)) == 0 {
		t.Fatalf("namespace %s has no objects", ended)
	}
	w.kubectl(t, "delete", "namespace", ended)
	w.kubectl(t, "delete", "validatingadmissionpolicybindings", "v1-fence.migration.projectcalico.org") // by a person who knows better
	late := v1Set("late", nil)
	harness.Eventually(t, "v1 to be open to an administrator", func() error { return w.Client.Create(t.Context(), late.DeepCopy()) })
	before := w.v1Content(t)

	w.askRemoval(t, name)
	sets := len(w.list(t, late.GroupVersionKind()))
	dm := w.awaitMessage(t, name, fmt.Sprintf("GlobalNetworkSet, %d objects of which %d were verified (written since: late)", sets, sets-1))
	if strings.Contains(dm.Status.Message, "NetworkPolicy") {
		t.Errorf("objects that went with their namespace keep v1: %s", dm.Status.Message)
	}
	if !strings.Contains(dm.Status.Message, migrationv1.AnnotationWaive+"="+migrationv1.Waiver("v1-changed", dm.UID)) {
		t.Errorf("the message does not say what to do: %s", dm.Status.Message)
	}
	if left := len(w.v1CRDs(t)); left != len(w.Registry.All()) {
		t.Fatalf("%d of %d v1 CRDs are left, though one kind has changed", left, len(w.Registry.All()))
	}
	w.calicoWebhooks(t).freeze("UPDATE " + fixture.OwnerTier) // they come with v3, after the lock
	w.waive(t, name, "v1-changed")
	w.awaitGone(t, name)
	w.assertNotesKept(t, fixture.OwnerTier)
	if left := w.v1CRDs(t); len(left) > 0 {
		t.Fatalf("v1 CRDs are left: %q", left)
	}
	for _, part := range []string{"> calico-v1.jsonl", "kubectl wait --for=condition=Established"} {
		w.shell(t, documented(t, part))
	}
	if diff := cmp.Diff(before, w.v1Content(t)); diff != "" {
		t.Errorf("v1 is not what it was (-before +restored):\n%s", diff)
	}
}

// inNamespace are the policies of v1 in a namespace.
func (w *world) inNamespace(t *testing.T, namespace string) (found []string) {
	t.Helper()
	kind, _ := w.Registry.Kind("NetworkPolicy")
	for _, obj := range w.list(t, kind.V1GVK()) {
		if obj.GetNamespace() == namespace {
			found = append(found, obj.GetName())
		}
	}
	return found
}

// v1Content is every v1 object without what a server writes.
func (w *world) v1Content(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, kind := range w.Registry.All() {
		for _, obj := range w.list(t, kind.V1GVK()) {
			obj = withoutServerFields(obj)
			obj.SetUID("")
			delete(obj.Object, "status")
			all[key(obj)] = obj.Object
		}
	}
	return all
}

// documented is the block of commands of the page about backups that has a text in it.
func documented(t *testing.T, part string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "operate", "backup-restore.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## The backup of a clean-up\n")
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		if strings.Contains(m[1], part) {
			return m[1]
		}
	}
	t.Fatalf("no commands with %q are documented", part)
	return ""
}

// shell runs commands as a reader does, in one directory.
func (w *world) shell(t *testing.T, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", commands)
	cmd.Dir = w.LogDir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "PATH="+filepath.Join(root(t), "bin", "tools")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s\n%.4000s", err, commands, out)
	}
}
