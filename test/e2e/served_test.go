package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Calico without its API server, as most manifests install it: v3 is served from its CRDs all the time. Objects are
// copied before the lock there, too, and an abort leaves nothing.
func TestCopiedAheadWithoutAPIServer(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects), NoStandIn: true})
	w.before = w.snapshot(t)
	w.setCNITemplate(t, fixture.CNITemplate("")) // as Calico ships it
	w.assertSaysOfCNI(t, saidOf(t)[withoutServer])
	w.said(t, "kubectl phasegate plan", 0, "clients of projectcalico.org/v3 see the copies", "let no controller act on projectcalico.org/v3",
		"new pods would get no address: cni_network_config of ConfigMap calico-config has no calico_api_group")
	w.manager(t, "--phases-dir", gated(t))

	for _, gate := range []string{"compared", "ahead", "locked", "verified"} {
		t.Run("abort "+gate, func(t *testing.T) {
			w.start(t, setup.MigrationName, gate)
			w.awaitGate(t, setup.MigrationName, gate)
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}

	for _, name := range []string{"ahead-goes", "ahead-changes"} {
		w.do(t, w.Client.Create(t.Context(), feed(name)))
	}
	w.start(t, setup.MigrationName, "ahead")
	dm := w.awaitGate(t, setup.MigrationName, "ahead")
	w.assertNothingLocked(t, dm)
	if ahead := dm.Status.CopyAhead; ahead == nil || ahead.State != migrationv1.CopyAheadOpen || ahead.Round < 1 {
		t.Errorf("status.copyAhead %+v", ahead)
	}
	if diff := cmp.Diff(w.before.V3CRDs, w.v3CRDs(t)); diff != "" {
		t.Errorf("the v3 CRDs were changed, though v3 can be reached without (-before +now):\n%s", diff)
	}
	if w.ready(t, v3) {
		t.Error("v3 is open while it is being filled")
	}
	w.do(t, w.Client.Delete(t.Context(), feed("ahead-goes")))
	w.do(t, w.Client.Create(t.Context(), feed("ahead-comes")))
	w.setNets(t, "ahead-changes", "198.51.100.0/24")
	w.goOn(t, "locked")
	w.awaitGate(t, setup.MigrationName, "locked")
	total := 0
	for _, copies := range w.copies(t) {
		total += len(copies)
	}
	if want := int(dm.Status.Progress.Migrated); total < want-1 {
		t.Errorf("%d copies are there when v1 is locked, want about %d", total, want)
	}
	w.goOn(t, "verified")
	w.awaitGate(t, setup.MigrationName, "verified")
	w.assertSidesAreEqual(t)
	w.assertOwners(t)
	w.goOn(t, nowhere)
	w.await(t, setup.MigrationName, "Converged")
	w.awaitMessage(t, setup.MigrationName, "calico-node")
	w.assertV3Open(t)
	w.assertSidesAreEqual(t)
	w.assertCNIFollows(t)
}

// assertCNIFollows: calico-node alone may run with v3, and what it has written for the CNI plugin leaves new pods
// without an address. Nothing is complete before that is changed, by the commands that status prints.
func (w *world) assertCNIFollows(t *testing.T) {
	t.Helper()
	w.do(t, fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace))
	w.awaitMessage(t, setup.MigrationName, "(the CNI plugin stays with v1, which is locked, and gives new pods no address: cni_network_config of ConfigMap calico-config has no calico_api_group)")
	time.Sleep(time.Second) // by which Kubernetes tells what was changed first
	status := w.said(t, "kubectl phasegate status "+setup.MigrationName, 0, "let the CNI plugin take the group")
	w.said(t, advised(t, status, "let the CNI plugin take the group"), 0, "configmap/calico-config replaced")
	w.awaitMessage(t, setup.MigrationName, "calico-node (its pods may be older than the change of ConfigMap calico-config, restart them)")
	status = w.said(t, "kubectl phasegate status "+setup.MigrationName, 0, "rollout restart")
	w.said(t, advised(t, status, "write the CNI configuration anew"), 0, "daemonset.apps/calico-node restarted")
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "datastoremigration/"+setup.MigrationName)
	if diff := cmp.Diff(fixture.CNITemplate(`"calico_api_group": "__CALICO_API_GROUP__",`), w.cniTemplate(t)); diff != "" {
		t.Errorf("the printed command has made of the template (-want +got):\n%s", diff)
	}
}

func (w *world) cniTemplate(t *testing.T) string {
	t.Helper()
	config := &corev1.ConfigMap{}
	w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: setup.CalicoNamespace, Name: fixture.ConfigMap}, config))
	return config.Data[fixture.CNIKey]
}

func (w *world) setCNITemplate(t *testing.T, text string) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: setup.CalicoNamespace, Name: fixture.ConfigMap}}
	before := config.DeepCopy()
	config.Data = map[string]string{fixture.CNIKey: text}
	w.do(t, w.Client.Patch(t.Context(), config, client.MergeFrom(before)))
}

// assertSidesAreEqual compares v1 and v3, read apart from the product.
func (w *world) assertSidesAreEqual(t *testing.T) {
	t.Helper()
	dynamic, err := dynamic.NewForConfig(w.Config)
	w.do(t, err)
	r := equality.Reader{Client: dynamic, Registry: w.Registry}
	inV1, err := r.V1(t.Context())
	w.do(t, err)
	inV3, err := r.V3(t.Context())
	w.do(t, err)
	if c := equality.Compare(inV1, inV3); !c.Equal() {
		t.Errorf("v1 and v3 differ: missing %v, extra %v, different %v", c.Missing, c.Extra, c.Different)
	}
}

// followPage types the block of docs/operate/migrate.md below a sentence.
func (w *world) followPage(t *testing.T, sentence string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "operate", "migrate.md"))
	w.do(t, err)
	_, rest, found := strings.Cut(string(page), "\n"+sentence)
	_, rest, _ = strings.Cut(rest, "```sh\n")
	block, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("the page has no block below %q", sentence)
	}
	block = strings.ReplaceAll(block, "migration.yaml", filepath.Join(root(t), "docs", "tutorials", "migration.yaml"))
	w.said(t, "set -e; ns="+setup.CalicoNamespace+"\n"+block, 0)
}
