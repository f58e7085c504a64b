package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What Calico's own calico-ipam does with the configuration that install-cni makes of the template: before, with v1
// locked for good, and once the template follows calico-node's variable. It is what the check cni-group is about.
func TestRealCNIPlugin(t *testing.T) {
	release := calico.ForTest(t, calico.IPAM)
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects), NoStandIn: true})
	w.setCNITemplate(t, fixture.CNITemplate(""))
	w.do(t, w.Grant(t.Context(), cniAccount, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}))
	plugin := calico.Plugin{Release: release, Kubeconfig: w.KubeconfigOf(cniAccount), Dir: t.TempDir()}
	asks := func(pod, group string) string {
		t.Helper()
		address, err := plugin.Add(t.Context(), calico.Pod{Name: pod, Node: "node-0"}, group)
		t.Logf("calico-ipam ADD for %s, group %q: %q %v", pod, group, address, err)
		return address
	}

	if got := asks("before", ""); got == "" {
		t.Fatal("the plugin gives no address before anything is migrated: is it of a release that works with these CRDs?")
	}
	w.manager(t)
	w.followPage(t, "First let the CNI plugin follow")
	for why, group := range map[string]string{
		"Calico's template names no group, and the plugin discovers v1": "",
		"install-cni falls back to v1":                                  "crd.projectcalico.org/v1",
	} {
		if got := asks("locked-"+group[:min(3, len(group))], group); got != "" {
			t.Errorf("a new pod gets %s in v1, which is locked for good, though %s", got, why)
		}
	}
	w.followPage(t, "Then let the components use v3")
	text := strings.ReplaceAll(w.cniTemplate(t), "__CALICO_API_GROUP__", fixture.APIGroupV3) // as install-cni does with its variable
	if !strings.Contains(text, `"calico_api_group": "`+fixture.APIGroupV3+`"`) {
		t.Fatalf("the configuration does not name v3:\n%s", text)
	}
	if got := asks("complete", fixture.APIGroupV3); got == "" {
		t.Error("a new pod gets no address though the migration is complete")
	}
}

// discoveryEvery is longer than API servers leave between two questions to an aggregated server.
const discoveryEvery = 70 * time.Second

// realMigration is not the name that Calico's own controller takes.
const realMigration = "to-v3"

// explained is why clients may see a field otherwise after a migration. What is not in it is a defect.
var explained = []calico.Explanation{
	{Path: `\.metadata\.uid`, Why: "an object of v3 is another object"},
	{Path: `\.metadata\.resourceVersion`, Why: "every write gives another"},
	{Path: `\.metadata\.generation`, Why: "the API server counts from 1 where it stores the object itself"},
	{Path: `\.metadata\.ownerReferences\[\d+\]\.uid`, Why: "the owner is another object, too; that it is the right one is checked apart"},
	{Path: `\.metadata\.creationTimestamp`, Why: "no client may set it"},
	{Path: `\.metadata\.managedFields\[phasegate .*`, Before: `()`, Why: "we have written the copy; what nobody owns in v1 is ours in name only"},
	{Objects: "ClusterInformation .*", Path: `\.metadata\.managedFields\[phasegate-manager .*`, Before: `()`, Why: "it was the lock: we have made it, and opened it"},
	{Path: `\.metadata\.managedFields\[Go-http-client .*`, Before: `()`, Why: "Calico's own programs write v1 past the API server, which shows the managers of its clients only"},
	{Objects: "GlobalNetworkPolicy .*owned.*", Path: `\.metadata\.managedFields\[gitops Apply \]\.fieldsV1`, Why: "an owner is known by its UID there, and has another"},
	{Objects: "FelixConfiguration default", Path: `\.metadata\.managedFields\[gitops Apply \]\.fieldsV1`, Before: ".*logSeverityScreen.*", Why: "an empty text means not set, and v3 has no such value"},
	{Objects: "Tier .*", Path: `\.status`, Before: `\{\}`, After: "()", Why: "the API server shows an empty status where there is none"},
	{Objects: "BlockAffinity .*", Path: `\.spec\.type`, Before: "()", After: `"host"`, Why: "v1 has it, and the API server does not show it"},
	{Objects: "StagedGlobalNetworkPolicy .*", Path: `\.spec\.types\[0\]`, Before: "()", After: `"Ingress"`, Why: "Calico's admission policies give types to whatever has none, and so does the copy"},
}

// A migration as Calico's own programs and their clients see it, field by field.
func TestRealCalico(t *testing.T) {
	r := realCalico(t, calico.IPAM, calico.Calicoctl)
	held := r.allocate(t, "pod", allocations(t))
	outside := r.ownedOutside(t)
	checked := r.ipamCheck(t, "")
	before := r.seen(t)
	r.assertTold(t, "profiles", "ipamblocks", "ipamhandles")

	r.manager(t)
	r.do(t, r.Migrate(t.Context(), realMigration))
	r.await(t, realMigration, "Converged")
	r.awaitMessage(t, realMigration, "calico-node")
	r.assertAddresses(t, held, v3)
	if diff := cmp.Diff(checked, r.ipamCheck(t, fixture.APIGroupV3)); diff != "" {
		t.Errorf("what calicoctl ipam check finds (-before +after):\n%s", diff)
	}
	r.switchOver(t, realMigration)
	r.server.Kill() // as the page says: it serves nobody
	gone := time.Now()
	r.remove(t, realMigration)
	if diff := cmp.Diff(checked, r.ipamCheck(t, "")); diff != "" {
		t.Errorf("what calicoctl ipam check finds when it discovers the group (-before +after):\n%s", diff)
	}

	t.Run("fields", func(t *testing.T) {
		found := calico.Explain(calico.Differences(before, r.seen(t)), explained)
		lines := append([]string{r.versions(t), fmt.Sprintf("%d objects, %d addresses", len(before), len(held))}, found.Lines...)
		report(t, "fields", lines)
		for i, d := range found.Unexplained {
			if i == 20 {
				t.Errorf("and %d more", len(found.Unexplained)-i)
				break
			}
			t.Error(d)
		}
		for _, why := range found.Unused {
			t.Errorf("nothing is explained by: %s", why)
		}
	})
	t.Run("namespaces", func(t *testing.T) { r.assertNamespacesEnd(t, gone) })
	t.Run("owners", func(t *testing.T) { r.assertRealOwners(t, outside) })
	t.Run("apply", r.assertApplies)
	t.Run("addresses", func(t *testing.T) {
		r.assertAddresses(t, held, v3)
		address, err := r.plugin.Add(t.Context(), calico.Pod{Name: "after", Node: "node-1"}, "")
		if err != nil {
			t.Errorf("a new pod gets no address: %v", err)
		}
		for pod, taken := range held {
			if taken == address {
				t.Errorf("a new pod gets %s, which %s has", address, pod)
			}
		}
	})
}

func (r *realCluster) versions(t *testing.T) string {
	t.Helper()
	text, err := r.release.Calicoctl(t.Context(), r.Kubeconfig, "", "version", "--client", "--allow-version-mismatch")
	if err != nil {
		t.Log(err)
	}
	return fmt.Sprintf("programs of %s; calicoctl says %q; %s", os.Getenv(calico.EnvDir), strings.Join(strings.Fields(text), " "), r.kubectl(t, "version"))
}

// ipamCheck is what calicoctl finds of IPAM, whatever else it finds.
func (r *realCluster) ipamCheck(t *testing.T, group string) []string {
	t.Helper()
	text, err := r.release.Calicoctl(t.Context(), r.Kubeconfig, group, "ipam", "check", "--allow-version-mismatch")
	r.do(t, err)
	found := calico.IPAMFindings(text)
	if len(found) < 5 {
		t.Fatalf("calicoctl ipam check found %q; it printed:\n%s", found, text)
	}
	slices.Sort(found)
	t.Logf("calicoctl ipam check, group %q: %q", group, found)
	return found
}

// assertTold checks of which kinds clients are told while Calico's API server serves v3: one more than the CRDs have, and not
// these others.
func (r *realCluster) assertTold(t *testing.T, more string, less ...string) {
	t.Helper()
	want := []string{more}
	for _, kind := range r.Registry.All() {
		if !slices.Contains(less, kind.V3Plural()) {
			want = append(want, kind.V3Plural())
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, r.toldKinds(t)); diff != "" {
		t.Errorf("Calico's API server tells of (-want +got):\n%s", diff)
	}
}

// assertNamespacesEnd: API servers ask a server for its kinds once a minute, and no namespace ends when it does not answer.
func (r *realCluster) assertNamespacesEnd(t *testing.T, gone time.Time) {
	<-time.After(time.Until(gone.Add(discoveryEvery)))
	r.assertToldOfCRDs(t)
	r.ensureNamespace(t, "doomed")
	r.kubectl(t, "delete", "namespace", "doomed", "--timeout=30s")
}

// assertAddresses checks that each pod has its address, once, and nobody else has one of these.
func (r *realCluster) assertAddresses(t *testing.T, held map[string]string, version string) {
	t.Helper()
	kind, _ := r.Registry.Kind("IPAMBlock")
	want := map[string][]string{}
	for pod, address := range held {
		want[pod] = []string{address}
	}
	if diff := cmp.Diff(want, r.assigned(t, kind, version)); diff != "" {
		t.Errorf("addresses in %s (-acknowledged +stored):\n%s", version, diff)
	}
}

// ownedOutside makes a ConfigMap that belongs to a tier, as the API server reports it.
func (r *realCluster) ownedOutside(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("v1")
	obj.SetKind("ConfigMap")
	obj.SetNamespace("default")
	obj.SetName("owned-by-a-tier")
	obj.SetOwnerReferences(ownedBy(fixture.OwnerTier))
	r.nameOwners(t, obj)
	r.do(t, r.Client.Create(t.Context(), obj))
	protect := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "patch"}}
	r.do(t, r.Grant(t.Context(), managerAccount, append(managerRules(t), protect)))
	return obj
}

// assertRealOwners: whoever has an owner in Calico has the right one, and nobody was collected as an orphan.
func (r *realCluster) assertRealOwners(t *testing.T, outside *unstructured.Unstructured) {
	r.do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(outside), outside))
	owned := append(r.list(t, mustKind(t, r.Registry, "GlobalNetworkPolicy").V3GVK()), outside)
	checked := 0
	for _, obj := range owned {
		for _, ref := range obj.GetOwnerReferences() {
			checked++
			if owner := r.get(t, v3, ref.Kind, ref.Name); owner.GetUID() != ref.UID || ref.APIVersion != v3 {
				t.Errorf("%s has owner %+v, want UID %s of %s", calico.Key(obj), ref, owner.GetUID(), v3)
			}
		}
	}
	if checked < fixture.OwnedPolicies {
		t.Errorf("%d owners, want at least %d", checked, fixture.OwnedPolicies)
	}
}

func mustKind(t *testing.T, reg *resources.Registry, name string) *resources.Kind {
	t.Helper()
	kind, found := reg.Kind(name)
	if !found {
		t.Fatalf("there is no kind %s", name)
	}
	return kind
}

// assertApplies: who has applied an object through the API server of Calico applies it to v3, and any object at all can be
// applied, without force.
func (r *realCluster) assertApplies(t *testing.T) {
	applied := 0
	for _, kind := range r.Registry.Kinds() {
		for _, obj := range r.list(t, kind.V3GVK()) {
			if _, noted := obj.GetAnnotations()[migrationv1.AnnotationMigratedBy]; noted {
				t.Errorf("%s bears our note", calico.Key(obj))
			}
			if err := r.applyAs(v3, obj, gitOps, "a", client.DryRunAll); err != nil {
				t.Errorf("%s: %v", calico.Key(obj), err)
			}
			applied++
		}
	}
	t.Logf("%d objects can be applied", applied)
	for name, entries := range r.foreignEntries(t) {
		t.Errorf("%s has managedFields of %s", name, strings.Join(entries, ", "))
	}
}
