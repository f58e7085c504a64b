package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What a person has to decide keeps a migration in Pending until he has decided; the decision is told, and
// seen by whoever asks later.
func TestWaivers(t *testing.T) {
	cases := map[string]struct {
		why, id string
		spoil   func(t *testing.T, w *world) (mend func())
		says    []string
	}{
		"a kind that nobody knows": {id: "v1-kinds", why: "its objects would stay behind",
			spoil: func(t *testing.T, w *world) func() {
				name := w.installForeignCRD(t)
				widget := v1Set("lonely", nil)
				widget.SetKind("Widget")
				w.create(t, widget)
				return func() { w.dropCRD(t, name) }
			}, says: []string{"1 objects of widgets.crd.projectcalico.org would stay behind", "kinds.extra"}},
		"policies forgotten": {id: "admission-policies", why: "users' policies would get no types",
			spoil: func(t *testing.T, w *world) func() {
				harness.NeedsKubernetes(t, 36, "Calico's policies that are missing here are MutatingAdmissionPolicies")
				w.kubectl(t, "delete", "mutatingadmissionpolicies.admissionregistration.k8s.io", "tierlabel.policy.projectcalico.org")
				return func() { w.restoreAdmission(t) }
			}, says: []string{"MutatingAdmissionPolicy tierlabel.policy.projectcalico.org is not there", "the copies do without them"}},
		"the peer acts": {id: "peer-controller", why: "two would migrate the same objects",
			spoil: func(t *testing.T, w *world) func() { return w.letPeerAct(t) },
			says:  []string{"system:serviceaccount:" + setup.CalicoNamespace + ":calico-kube-controllers", "give the migration another name, to-v3 say"}},
	}
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			mend := tc.spoil(t, w)
			w.start(t, setup.MigrationName, "begin")
			for _, part := range append(tc.says, "waive it with the annotation "+migrationv1.AnnotationWaive+"="+tc.id+"@") {
				if dm := w.awaitMessage(t, setup.MigrationName, part); dm.Status.Phase != "Pending" {
					t.Fatalf("phase %s: %s", dm.Status.Phase, tc.why)
				}
			}
			w.annotate(t, setup.MigrationName, map[string]string{migrationv1.AnnotationWaive: tc.id + ",v3-crds"})
			for _, part := range []string{`waives "v3-crds", which is no check that may be waived`, fmt.Sprintf("waives %q, which was not decided about this object", tc.id)} {
				w.awaitMessage(t, setup.MigrationName, part)
			}
			w.waive(t, setup.MigrationName, tc.id)
			w.awaitGate(t, setup.MigrationName, "begin")
			if told := w.awaitEvent(t, "ChecksWarn"); !strings.Contains(told, tc.id+": waived: ") {
				t.Errorf("the decision is told as %q", told)
			}
			if said := w.phasegate(t, "check", "--controllers", "datastoremigration"); !strings.Contains(said, "    waived: ") || !strings.Contains(said, tc.says[0]) {
				t.Errorf("whoever asks later does not see it:\n%s", said)
			}
			w.remove(t, setup.MigrationName)
			if err := w.Client.DeleteAllOf(t.Context(), &corev1.Event{}, client.InNamespace(metav1.NamespaceDefault)); err != nil { // of all tests before
				t.Fatal(err)
			}
			mend()
		})
	}
}

// The peer's controller is no danger to a migration with a name that it does not act on.
func TestPeerLeavesOtherNamesAlone(t *testing.T) {
	w := pristine(t)
	mend := w.letPeerAct(t)
	defer mend()
	w.said(t, "kubectl phasegate plan", 0, "acts on a DatastoreMigration with the name v1-to-v3, as this program does, too: give the migration another name, to-v3 say")
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, "to-v3", "pending")
	w.awaitGate(t, "to-v3", "pending")
	w.said(t, "kubectl phasegate plan to-v3", 0, "it leaves to-v3 alone: create none of that name")
	theirs := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3"}}
	theirs.Spec.Type = migrationv1.APIServerToCRDs
	w.do(t, w.Client.Create(t.Context(), theirs)) // the peer has not seen it yet
	w.said(t, "kubectl phasegate plan to-v3", 1, "× peer-controller: ", "there is one beside to-v3: delete v1-to-v3; or keep that controller away")
	w.remove(t, "v1-to-v3")
	w.annotate(t, "to-v3", map[string]string{openGates: gatesBefore("begin")})
	w.awaitGate(t, "to-v3", "begin")
	w.remove(t, "to-v3")
}

// letPeerAct gives Calico's controllers the right that only a migration of theirs needs.
func (w *world) letPeerAct(t *testing.T) (stop func()) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "calico-kube-controllers"}
	objs := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"migration.projectcalico.org"},
			Resources: []string{"datastoremigrations", "datastoremigrations/status"}, Verbs: []string{"get", "update"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: setup.CalicoNamespace, Name: name.Name}}},
	}
	for _, obj := range objs {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, obj := range objs {
			if err := w.Client.Delete(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (w *world) restoreAdmission(t *testing.T) {
	t.Helper()
	set, err := crds.Load(w.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), w.Config, crds.Set{Admission: set.Admission}); err != nil {
		t.Fatal(err)
	}
}
