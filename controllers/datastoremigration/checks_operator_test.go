package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The operator takes Calico to v3 after the point of no return: what would keep it from that is a failure before.
func TestTigeraOperator(t *testing.T) {
	const (
		refuses = "failure: the Tigera operator runs Calico here, and the API server does not serve MutatingAdmissionPolicy: " +
			"without it the operator refuses to run with v3, and the migration would stay in Converged"
		onlyFirst = ": the Tigera operator runs Calico here, and looks at one DatastoreMigration only, the first by name: a-first"
		misled    = "failure" + onlyFirst + "; it would put the APIService back while this one migrates, and not take Calico to v3"
	)
	calico := func(controller string) *appsv1.DaemonSet {
		node := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: calicoNode}}
		if controller != "" {
			node.OwnerReferences = []metav1.OwnerReference{{APIVersion: controller + "/v1", Kind: "Installation", Name: "default", UID: "u", Controller: new(true)}}
		}
		return node
	}
	named := func(names ...string) (all []client.Object) {
		for _, name := range names {
			all = append(all, &migration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
		}
		return all
	}
	both := []*metav1.APIResourceList{resourceList("v1", "validatingadmissionpolicies", "mutatingadmissionpolicies")}
	validating := []*metav1.APIResourceList{resourceList("v1", "validatingadmissionpolicies")}
	cases := map[string]struct {
		why    string
		served []*metav1.APIResourceList
		node   *appsv1.DaemonSet
		all    []client.Object
		asking string
		want   []string
	}{
		"manifests":               {served: validating, node: calico(""), all: named("a-first", "to-v3"), asking: "to-v3", why: "a person switches the components, and needs no policy"},
		"an operator of others":   {served: validating, node: calico("operator.example.com"), why: "what it needs is not known"},
		"not in this namespace":   {served: validating, node: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: calicoNode}}, why: "the end of the migration asks for it"},
		"all it needs":            {served: both, node: calico(tigeraGroup), all: named("to-v3"), asking: "to-v3", why: "it reads this one"},
		"a beta":                  {served: []*metav1.APIResourceList{resourceList("v1beta1", "mutatingadmissionpolicies")}, node: calico(tigeraGroup), why: "the operator takes any version"},
		"no policies that mutate": {served: validating, node: calico(tigeraGroup), want: []string{refuses}, why: "it ends when it starts with v3"},
		"another one comes first": {served: both, node: calico(tigeraGroup), all: named("a-first", "to-v3"), asking: "to-v3", want: []string{misled}, why: "whatever has become of that one"},
		"another one comes later": {served: both, node: calico(tigeraGroup), all: named("a-first", "to-v3"), asking: "a-first", why: "it is not looked at"},
		"two, and none asks":      {served: both, node: calico(tigeraGroup), all: named("to-v3", "a-first"), want: []string{"warning" + onlyFirst}, why: "the other one may be the one to begin"},
		"one, and none asks":      {served: both, node: calico(tigeraGroup), all: named("to-v3"), why: "there is no other"},
		"both":                    {served: validating, node: calico(tigeraGroup), all: named("a-first", "to-v3"), asking: "to-v3", want: []string{refuses, misled}, why: "each has its remedy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newEffects(newFake().WithObjects(append(tc.all, tc.node)...).Build(),
				Settings{CalicoNamespace: "calico-system", Discovery: &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: tc.served}}})
			findings, err := s.preflight.tigeraOperator(&migration{ObjectMeta: metav1.ObjectMeta{UID: types.UID(tc.asking)}}).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, messages(findings)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
