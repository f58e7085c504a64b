package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// limited is somebody who may write policies in the default tier alone.
const limited = "limited-user"

// Calico's own admission webhooks are asked about every write of v3, installed as its manifest has them. A migration waits
// until they let the manager write ClusterInformation, as the documents say; then they refuse nothing of it: neither its abort,
// nor what it does to its end. Where they do not answer, an abort opens v1 all the same, and ends when they are back. In v3
// they refuse what Calico's API server refused.
func TestRealWebhooks(t *testing.T) {
	release := releaseWithWebhooks(t)
	r := realCalico(t, calico.IPAM)
	user := r.limitedUser(t)
	r.assertRefusedByTier(t, user, "before")
	held := r.allocate(t, "pod", 12)
	before := r.seen(t)
	hooks, config := r.realWebhooks(t, release)
	r.manager(t, "--phases-dir", gated(t))

	inTurn(t, "what they refuse is found before the lock", func(t *testing.T) {
		r.do(t, r.Client.Create(t.Context(), tierless()))
		r.start(t, setup.MigrationName, "verified")
		for _, part := range []string{"ClusterInformation default: create is refused: ", `admission webhook "cluster-info.api.projectcalico.org" denied the request`, managerUser} {
			if dm := r.awaitMessage(t, setup.MigrationName, part); dm.Status.Phase != "Pending" || dm.Status.Lock != nil {
				t.Errorf("phase %s, lock %v: it is found too late", dm.Status.Phase, dm.Status.Lock)
			}
		}
		r.exempt(t, config)
		for _, part := range []string{"GlobalNetworkPolicy " + tierless().GetName(), `admission webhook "tiered-rbac.projectcalico.org" denied the request`} {
			if dm := r.awaitMessage(t, setup.MigrationName, part); dm.Status.Phase != "Pending" {
				t.Errorf("phase %s: that a tier is missing is found too late", dm.Status.Phase)
			}
		}
		r.do(t, r.Client.Delete(t.Context(), tierless()))
		r.annotate(t, setup.MigrationName, map[string]string{"unrelated": "wakes it"})
		r.awaitGate(t, setup.MigrationName, "verified")
		r.assertSidesAreEqual(t)
	})
	inTurn(t, "aborted while they are away", func(t *testing.T) {
		hooks.Kill()
		begun := time.Now()
		r.askRemoval(t, setup.MigrationName)
		harness.Eventually(t, "v1 to be open though the webhooks are away", func() error { return nilIf(r.ready(t, v1)) })
		opened := since(begun)
		r.awaitMessage(t, setup.MigrationName, "failed calling webhook")
		t.Logf("v1 is open after %s, the message says why the abort does not end after %s", opened, since(begun))
		begun = time.Now()
		r.do(t, hooks.Start())
		r.awaitGone(t, setup.MigrationName)
		t.Logf("gone %s after they were back", since(begun))
		r.assertAsBefore(t, before, held)
	})
	inTurn(t, "aborted", func(t *testing.T) {
		r.start(t, setup.MigrationName, "verified")
		r.awaitGate(t, setup.MigrationName, "verified")
		r.remove(t, setup.MigrationName)
		r.assertAsBefore(t, before, held)
	})
	inTurn(t, "to the end", func(t *testing.T) {
		r.start(t, setup.MigrationName, nowhere)
		r.await(t, setup.MigrationName, "Converged")
		r.switchOver(t, setup.MigrationName)
		r.remove(t, setup.MigrationName)
		r.assertAddresses(t, held, v3)
		r.assertNoNotes(t)
	})
	inTurn(t, "what they refuse", func(t *testing.T) {
		r.assertRefusedByTier(t, user, "after")
		r.assertInfoClosed(t)
	})
	r.do(t, hooks.Alive())
}

// The same where v3 is served from its CRDs all the time: then the webhooks look for tiers among the copies.
func TestRealWebhooksWithoutAPIServer(t *testing.T) {
	release := releaseWithWebhooks(t)
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects), NoStandIn: true})
	w.before = w.snapshot(t)
	_, config := w.realWebhooks(t, release)
	w.exempt(t, config)
	w.manager(t, "--phases-dir", gated(t))
	for _, gate := range []string{"ahead", "verified"} {
		inTurn(t, "aborted "+gate, func(t *testing.T) {
			w.start(t, setup.MigrationName, gate)
			w.awaitGate(t, setup.MigrationName, gate)
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
	inTurn(t, "to the end", func(t *testing.T) {
		w.start(t, setup.MigrationName, nowhere)
		w.await(t, setup.MigrationName, "Converged")
		w.assertSidesAreEqual(t)
		w.do(t, fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace))
		w.await(t, setup.MigrationName, "Complete")
		w.remove(t, setup.MigrationName)
		w.assertNoNotes(t)
	})
}

// releaseWithWebhooks skips the test where Calico's webhooks cannot be run.
func releaseWithWebhooks(t *testing.T) calico.Release {
	t.Helper()
	release := calico.ForTest(t, calico.Webhooks)
	if err := calico.MayUnshare(t.Context()); err != nil {
		t.Skipf("not run: this machine gives Calico's webhooks no mounts of their own: %v", err)
	}
	return release
}

// realWebhooks runs Calico's webhooks until the test ends, and registers them.
func (w *world) realWebhooks(t *testing.T, release calico.Release) (*calico.WebhookServer, *registrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	hooks, err := release.StartWebhooks(t.Context(), w.Cluster, setup.CalicoNamespace)
	w.do(t, err)
	t.Cleanup(func() {
		hooks.Kill()
		if t.Failed() {
			t.Logf("the end of what Calico's webhooks said:\n%s", hooks.Tail(25))
		}
	})
	config := hooks.Configuration()
	w.do(t, w.Client.Create(t.Context(), config))
	return hooks, config
}

// exempt lets the manager write ClusterInformation, as docs/operate/troubleshooting.md says.
func (w *world) exempt(t *testing.T, config *registrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	exempt := config.DeepCopy()
	exempt.Webhooks[1].MatchConditions = []registrationv1.MatchCondition{{Name: "not-phasegate", Expression: fmt.Sprintf("request.userInfo.username != %q", managerUser)}}
	w.do(t, w.Client.Patch(t.Context(), exempt, client.MergeFrom(config)))
}

// assertNoNotes: nothing was refused to the clean-up, which has taken all notes off.
func (w *world) assertNoNotes(t *testing.T) {
	t.Helper()
	if told := strings.TrimSpace(w.kubectl(t, "get", "events", "-A", "--field-selector=reason=NotesKept", "-o", "jsonpath={.items[*].message}")); told != "" {
		t.Errorf("something of ours was refused in the clean-up: %s", told)
	}
	for _, kind := range w.Registry.All() {
		for _, obj := range w.list(t, kind.V3GVK()) {
			if obj.GetAnnotations()[migrationv1.AnnotationMigratedBy] != "" {
				t.Errorf("%s bears our note", calico.Key(obj))
			}
		}
	}
}

// limitedUser is a client of that account.
func (r *realCluster) limitedUser(t *testing.T) client.Client {
	t.Helper()
	in := func(verb string, plurals []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{resources.V3Group}, Verbs: []string{verb}, Resources: plurals, ResourceNames: names}
	}
	tiered := make([]string, 0, len(calico.TieredPolicies))
	for _, plural := range calico.TieredPolicies {
		tiered = append(tiered, "tier."+plural)
	}
	r.do(t, r.Grant(t.Context(), limited, []rbacv1.PolicyRule{in("get", []string{"tiers"}), in("*", calico.TieredPolicies), in("*", tiered, "default.*")}))
	config, err := clientcmd.BuildConfigFromFlags("", r.KubeconfigOf(limited))
	r.do(t, err)
	c, err := client.New(config, client.Options{Scheme: r.Client.Scheme()})
	r.do(t, err)
	return c
}

// assertRefusedByTier: a policy of the tier of others is refused to the user, and one of the default tier is not.
func (r *realCluster) assertRefusedByTier(t *testing.T, user client.Client, name string) {
	t.Helper()
	for tier, allowed := range map[string]bool{"default": true, fixture.OwnerTier: false} {
		policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tier": tier, "selector": "all()"}}}
		policy.SetAPIVersion(v3)
		policy.SetKind("GlobalNetworkPolicy")
		policy.SetName(tier + "." + name)
		err := user.Create(t.Context(), policy)
		switch {
		case allowed:
			r.do(t, err)
			r.do(t, user.Delete(t.Context(), policy))
		case !apierrs.IsForbidden(err) || !strings.Contains(err.Error(), "globalnetworkpolicies.projectcalico.org in tier"):
			t.Errorf("%s, tier %s: answered with %v, want that the user may not create it", name, tier, err)
		default:
			t.Logf("%s: %v", name, err)
		}
	}
}

// assertInfoClosed: an administrator may not write ClusterInformation in v3; the command of docs/operate/break-glass.md, in the
// name of kube-controllers, may.
func (r *realCluster) assertInfoClosed(t *testing.T) {
	t.Helper()
	info := r.get(t, v3, "ClusterInformation", "default")
	info.SetLabels(map[string]string{"noted": "yes"})
	if err := r.Client.Update(t.Context(), info); err == nil || !strings.Contains(err.Error(), "cluster-info.api.projectcalico.org") {
		t.Errorf("an administrator writes ClusterInformation: answered with %v, want a refusal", err)
	}
	account := "system:serviceaccount:" + setup.CalicoNamespace + ":calico-kube-controllers"
	r.kubectl(t, "create", "clusterrole", "its-information", "--verb=get,update", "--resource=clusterinformations.projectcalico.org")
	r.kubectl(t, "create", "clusterrolebinding", "its-information", "--clusterrole=its-information", "--user="+account)
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "operate", "break-glass.md"))
	r.do(t, err)
	_, block, _ := strings.Cut(string(page), "these may update, not patch:\n\n```sh\n")
	block, _, _ = strings.Cut(block, "```")
	r.said(t, block, 0, "replaced")
}
