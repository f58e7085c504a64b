package datastoremigration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
)

// A tier of Calico's own that has drifted blocks, as it does at Calico's own controller: v3 would refuse the copy.
func TestBuiltInTiers(t *testing.T) {
	spec := func(order, action any) map[string]any { return map[string]any{"order": order, "defaultAction": action} }
	cases := map[string]struct {
		why  string
		tier string
		spec map[string]any
		want string // the message, empty if nothing blocks
	}{
		"default":                  {why: "it is as v3 demands", tier: "default", spec: spec(int64(1_000_000), "Deny")},
		"default as a float":       {why: "YAML writes 1e+06", tier: "default", spec: spec(1e6, "Deny")},
		"default says nothing":     {why: "Calico fills it in", tier: "default", spec: map[string]any{}},
		"default without a spec":   {why: "the same", tier: "default"},
		"default, empty action":    {why: "an empty value is none, and is not copied", tier: "default", spec: spec(int64(1_000_000), "")},
		"default has moved":        {why: "its order", tier: "default", spec: spec(int64(500), "Deny"), want: "Tier default has order 500 and defaultAction Deny; v3 demands order 1000000 and defaultAction Deny"},
		"default passes":           {why: "its action", tier: "default", spec: spec(int64(1_000_000), "Pass"), want: "Tier default has order 1000000 and defaultAction Pass; v3 demands order 1000000 and defaultAction Deny"},
		"kube-admin":               {why: "it is as v3 demands", tier: "kube-admin", spec: spec(int64(1_000), "Pass")},
		"kube-admin has moved":     {why: "its order", tier: "kube-admin", spec: spec(int64(2), "Pass"), want: "Tier kube-admin has order 2 and defaultAction Pass; v3 demands order 1000 and defaultAction Pass"},
		"kube-admin, no action":    {why: "Calico would fill in Deny", tier: "kube-admin", spec: map[string]any{"order": int64(1_000)}, want: "Tier kube-admin has order 1000 and no defaultAction; v3 demands order 1000 and defaultAction Pass"},
		"kube-admin, empty action": {why: "the same", tier: "kube-admin", spec: spec(int64(1_000), ""), want: "Tier kube-admin has order 1000 and no defaultAction; v3 demands order 1000 and defaultAction Pass"},
		"kube-baseline denies":     {why: "its action", tier: "kube-baseline", spec: spec(int64(10_000_000), "Deny"), want: "Tier kube-baseline has order 10000000 and defaultAction Deny; v3 demands order 10000000 and defaultAction Pass"},
		"kube-baseline, no order":  {why: "Calico would fill in that of default", tier: "kube-baseline", spec: map[string]any{"defaultAction": "Pass"}, want: "Tier kube-baseline has no order and defaultAction Pass; v3 demands order 10000000 and defaultAction Pass"},
		"another":                  {why: "people may order their own as they like", tier: "mine", spec: spec(int64(7), "Pass")},
	}
	kind, _ := resources.Default().Kind(tierKind)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tier := &unstructured.Unstructured{Object: map[string]any{}}
			if c.spec != nil {
				tier.Object["spec"] = c.spec
			}
			tier.SetGroupVersionKind(kind.V1GVK())
			tier.SetName(c.tier)
			e := newEffects(newFake().WithObjects(tier).Build(), Settings{Registry: resources.Default()})
			var want []string
			if c.want != "" {
				want = []string{"failure: " + c.want}
			}
			wantFindings(t, c.why, e.preflight.builtInTiers(), want)
		})
	}
}

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
			e := newEffects(newFake().WithObjects(c.there...).Build(), Settings{Discovery: serving(c.served...)})
			wantFindings(t, c.why, e.preflight.admissionPolicies(), c.want)
		})
	}
}

// wantFindings compares what a check finds, as levels and messages. What is said of a policy is said of its binding again.
func wantFindings(t *testing.T, why string, asked check.Check, want []string) {
	t.Helper()
	findings, err := asked.Run(t.Context())
	must(t, err)
	var got []string
	for _, f := range findings {
		if !strings.Contains(f.Message, "Binding") {
			got = append(got, string(f.Level)+": "+f.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", why, diff)
	}
}

// serving is discovery of an API server that serves these resources.
func serving(lists ...*metav1.APIResourceList) *fake.FakeDiscovery {
	return &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: lists}}
}

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
			e := newEffects(newFake().WithObjects(append(tc.all, tc.node)...).Build(), Settings{CalicoNamespace: "calico-system", Discovery: serving(tc.served...)})
			wantFindings(t, tc.why, e.preflight.tigeraOperator(&migration{ObjectMeta: metav1.ObjectMeta{UID: types.UID(tc.asking)}}), tc.want)
		})
	}
}

// Both programs act on v1-to-v3, and only ours on another name.
func TestBothAct(t *testing.T) {
	for name, tt := range map[string]struct {
		name  string
		there bool
		level check.Level
		says  []string
	}{
		"no migration yet":           {level: check.Warning, says: []string{"give the migration another name, to-v3 say"}},
		"one of that name":           {there: true, level: check.Failure, says: []string{"another name", "take its right", "controllers.datastoremigration.enabled=false"}},
		"this one has that name":     {name: "v1-to-v3", there: true, level: check.Failure, says: []string{"another name", "take its right", "controllers.datastoremigration.enabled=false"}},
		"this one has another":       {name: "to-v3", level: check.Warning, says: []string{"it leaves to-v3 alone: create none of that name"}},
		"one of that name beside it": {name: "to-v3", there: true, level: check.Failure, says: []string{"there is one beside to-v3: delete v1-to-v3; or keep that controller away"}},
	} {
		got := bothAct(tt.name, tt.there, "system:serviceaccount:calico-system:calico-kube-controllers")
		for _, part := range append(tt.says, "acts on a DatastoreMigration with the name v1-to-v3, as this program does") {
			if got.Level != tt.level || !strings.Contains(got.String(), part) {
				t.Errorf("%s: %s %q, want %s and %q", name, got.Level, got, tt.level, part)
			}
		}
	}
}

// Of one manager on the pod network nobody is left who opens v1, when its node is lost under the lock.
func TestAManagerIsLeft(t *testing.T) {
	pod := func(name, node string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": "phasegate", "app.kubernetes.io/instance": "a", "app.kubernetes.io/component": "datastoremigration"}}}
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	other := func(p *corev1.Pod) { p.Labels["app.kubernetes.io/component"] = "mcpserver" }
	hosted := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for name, c := range map[string]struct {
		why  string
		pods []corev1.Pod
		left bool
	}{
		"alone":                {"nobody stands by", []corev1.Pod{pod("own", "n1")}, false},
		"two nodes":            {"the other has its address already", []corev1.Pod{pod("own", "n1"), pod("b", "n2")}, true},
		"one node":             {"both go with it", []corev1.Pod{pod("own", "n1"), pod("b", "n1")}, false},
		"the other not ready":  {"it may never be", []corev1.Pod{pod("own", "n1"), pod("b", "n2", unready)}, false},
		"the other goes":       {"a rollout, or a scale down", []corev1.Pod{pod("own", "n1"), pod("b", "n2", going)}, false},
		"another controller":   {"it opens nothing", []corev1.Pod{pod("own", "n1"), pod("b", "n2", other)}, false},
		"on the host network":  {"a new one needs no address", []corev1.Pod{pod("own", "n1", hosted)}, true},
		"own is not ready yet": {"two others are", []corev1.Pod{pod("own", "n1", unready), pod("b", "n2"), pod("c", "n3")}, true},
		"own is not there":     {"nothing is known of it", []corev1.Pod{pod("b", "n2")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeManagers(c.pods, types.NamespacedName{Namespace: "ns", Name: "own"}); (len(got) == 0) != c.left {
				t.Errorf("found %v: %s", got, c.why)
			}
		})
	}
}

// Who reads v3 before it is in use sees copies only where nothing stands before v3's storage; and only where
// something does, a right on the CRDs is needed to copy ahead.
func TestCopiesInSight(t *testing.T) {
	const seen = "warning: v3 is served from its CRDs: until Converged, clients of projectcalico.org/v3 see the copies, which are not complete and not in use"
	for name, c := range map[string]struct {
		why  string
		have []client.Object
		want []string
	}{
		"aggregated": {"Calico's API server shows what v1 has", []client.Object{v3Service("calico-api")}, nil},
		"local":      {"the API server itself serves the CRDs", []client.Object{v3Service("")}, []string{seen}},
		"not there":  {"there is no v3, as another check says", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEffects(newFake().WithObjects(c.have...).Build(), Settings{Registry: resources.Default()})
			wantFindings(t, c.why, e.door.copiesInSight(), c.want)
		})
	}
}

func TestLockIsFree(t *testing.T) {
	cases := map[string]struct {
		why            string
		locked         bool
		holder, asking types.UID
		want           []string
	}{
		"open":          {why: "nobody is in the way"},
		"our own":       {why: "a migration comes back to Pending with its lock", locked: true, holder: "known", asking: "known"},
		"another's":     {why: "two would open it for each other", locked: true, holder: "known", asking: "other", want: []string{`failure: v1 ClusterInformation has datastoreReady=false, locked by "known"`}},
		"a person asks": {why: "v1 stays locked for good after a migration: helm test is not to fail for it", locked: true, holder: "known", want: []string{"info: v1 is locked by DatastoreMigration v1-to-v3"}},
		"of one that is gone": {why: "nobody will open it", locked: true, holder: "gone", want: []string{
			"failure: v1 ClusterInformation has datastoreReady=false, locked by a DatastoreMigration that is gone, UID gone: its finalizer was removed by hand, so nothing released what it held"}},
		"by a person": {why: "with kubectl phasegate lock", locked: true, holder: "kubectl phasegate lock: admin at 9", want: []string{"failure: v1 ClusterInformation has datastoreReady=false: a person closed it (kubectl phasegate lock: admin at 9)"}},
		"by hand":     {why: "no note says by whom", locked: true, want: []string{`failure: v1 ClusterInformation has datastoreReady=false, locked by ""`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			info := lockObject(!c.locked)
			if c.holder != "" {
				info.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: string(c.holder)})
			}
			known := &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: "known"}}
			e := newEffects(newFake().WithObjects(info, known).Build(), Settings{Registry: resources.Default()})
			var asking *migration
			if c.asking != "" {
				asking = &migration{ObjectMeta: metav1.ObjectMeta{UID: c.asking}}
			}
			wantFindings(t, c.why, e.preflight.lockIsFree(asking), c.want)
		})
	}
}
