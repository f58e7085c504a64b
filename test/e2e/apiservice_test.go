package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/phasegate/phasegate/test/fakeapiserver"
	"github.com/phasegate/phasegate/test/setup"
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
