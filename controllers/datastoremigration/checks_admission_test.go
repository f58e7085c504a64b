package datastoremigration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
)

func resourceList(version string, names ...string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: admissionregistrationv1.GroupName + "/" + version}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list
}

func TestAdmissionPolicies(t *testing.T) {
	const (
		validating, validatingBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
		mutating, mutatingBindings     = "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"
	)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	calicos := []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("protect-builtin-tiers.projectcalico.org")},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("protect-builtin-tiers.projectcalico.org")},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("policytypes.policy.projectcalico.org")},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("tierlabel.policy.projectcalico.org")},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named("set-policytypes-binding")},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named("set-tier-label-binding")},
	}
	const pools = "info: MutatingAdmissionPolicy ippool.policy.projectcalico.org is not there: pools that are written later get no blockSize, as with Calico up to 3.33, which has no such policy"
	cases := map[string]struct {
		why    string
		served []*metav1.APIResourceList
		there  []client.Object
		want   []string // levels and messages, those of bindings left out
	}{
		"1.36, Calico's policies": {
			why: "all is well", there: calicos,
			served: []*metav1.APIResourceList{resourceList("v1", validating, validatingBindings, mutating, mutatingBindings)},
			want:   []string{"info: ValidatingAdmissionPolicy is served in v1", "info: MutatingAdmissionPolicy is served in v1", pools},
		},
		"policies of a newer Calico": {
			why: "it has one more", there: append([]client.Object{
				&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("ippool.policy.projectcalico.org")},
				&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named("set-ippool-defaults-binding")},
			}, calicos...),
			served: []*metav1.APIResourceList{resourceList("v1", validating, validatingBindings, mutating, mutatingBindings)},
			want:   []string{"info: ValidatingAdmissionPolicy is served in v1", "info: MutatingAdmissionPolicy is served in v1"},
		},
		"two versions": {
			why: "the first is the best one, and the one that is read", there: calicos,
			served: []*metav1.APIResourceList{resourceList("v1", validating, validatingBindings, mutating, mutatingBindings), resourceList("v1beta1", mutating, mutatingBindings)},
			want:   []string{"info: ValidatingAdmissionPolicy is served in v1", "info: MutatingAdmissionPolicy is served in v1, v1beta1", pools},
		},
		"1.30": {
			why: "a migration does without", there: calicos[:2],
			served: []*metav1.APIResourceList{resourceList("v1", validating, validatingBindings)},
			want: []string{"info: ValidatingAdmissionPolicy is served in v1",
				"warning: the API server does not serve MutatingAdmissionPolicy: policies that are written later get no types and no tier label"},
		},
		"forgotten": {
			why: "it is served, but nobody has applied Calico's", there: calicos[:3],
			served: []*metav1.APIResourceList{resourceList("v1", validating, validatingBindings, mutating, mutatingBindings)},
			want: []string{"info: ValidatingAdmissionPolicy is served in v1", "info: MutatingAdmissionPolicy is served in v1",
				"failure: MutatingAdmissionPolicy tierlabel.policy.projectcalico.org is not there: policies that are written later get no types and no tier label", pools},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newEffects(newFake().WithObjects(c.there...).Build(),
				Settings{Discovery: &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: c.served}}})
			findings, err := s.preflight.admissionPolicies().Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, withoutBindings(findings)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// withoutBindings: what is said of a policy is said of its binding again.
func withoutBindings(findings []check.Finding) []string {
	return messages(slices.DeleteFunc(findings, func(f check.Finding) bool { return strings.Contains(f.Message, "Binding") }))
}

func messages(findings []check.Finding) (all []string) {
	for _, f := range findings {
		all = append(all, string(f.Level)+": "+f.Message)
	}
	return all
}
