package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What applies the APIService again in the middle, an operator or GitOps, makes v3 show v1: the migration points
// it to the CRDs once more and goes on, instead of waiting for its timeout with v1 closed.
func TestTheAPIServiceComesBack(t *testing.T) {
	cases := map[string]string{
		"before v3 is served":   "parked",
		"before the copy":       "v3locked",
		"before the comparison": "remapped",
	}
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	before := w.content(t)
	for name, gate := range cases {
		inTurn(t, name, func(t *testing.T) {
			applied := w.liveAPIService(t)
			w.start(t, setup.MigrationName, gate)
			w.awaitGate(t, setup.MigrationName, gate)
			now := w.liveAPIService(t)
			if now.Spec.Service != nil {
				t.Fatalf("at gate %s the APIService points to %v", gate, now.Spec.Service)
			}
			now.Labels, now.Annotations, now.Spec = applied.Labels, applied.Annotations, applied.Spec
			w.do(t, w.Client.Update(t.Context(), now))
			w.goOn(t, "verified")
			w.awaitGate(t, setup.MigrationName, "verified")
			assertSameContent(t, before, w.content(t))
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
}

func (w *world) liveAPIService(t *testing.T) *apiregistrationv1.APIService {
	t.Helper()
	svc := &apiregistrationv1.APIService{}
	w.do(t, w.Client.Get(t.Context(), types.NamespacedName{Name: fakeapiserver.APIServiceName}, svc))
	return svc
}

// An API server that has seen the APIService of a server turn into one of CRDs goes on to tell of the kinds of that server,
// and once it is gone, that it cannot: then no namespace ends any more. Nothing of this is left when a migration is through.
func TestNobodyIsToldOfTheAPIServer(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects)})
	w.manager(t)
	if told := w.toldKinds(t); !slices.Contains(told, "profiles") {
		t.Fatalf("the aggregated API server serves %q: it has nothing that the CRDs have not", told)
	}
	w.do(t, w.Migrate(t.Context(), setup.MigrationName))
	w.awaitMessage(t, setup.MigrationName, "calico-node")
	w.assertToldOfCRDs(t)
	svc := w.liveAPIService(t)
	if svc.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" || svc.Spec.Service != nil || len(svc.Annotations) > 0 {
		t.Errorf("the APIService is not as kube-apiserver makes it for CRDs: %+v", svc)
	}
}

// toldKinds are the kinds of v3 of which clients are told that look for kinds.
func (w *world) toldKinds(t *testing.T) (plurals []string) {
	t.Helper()
	out := w.kubectl(t, "api-resources", "--api-group="+resources.V3Group, "-o", "name", "--cached=false")
	for name := range strings.FieldsSeq(out) {
		plurals = append(plurals, strings.TrimSuffix(name, "."+resources.V3Group))
	}
	slices.Sort(plurals)
	return plurals
}

func (w *world) assertToldOfCRDs(t *testing.T) {
	t.Helper()
	want := []string{}
	for _, kind := range w.Registry.All() {
		want = append(want, kind.V3Plural())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.toldKinds(t)); diff != "" {
		t.Errorf("clients are told of (-CRDs +told):\n%s", diff)
	}
}
