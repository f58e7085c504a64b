package datastoremigration

import (
	"strings"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Who reads v3 before it is in use sees copies only where nothing stands before v3's storage; and only where
// something does, a right on the CRDs is needed to copy ahead.
func TestCopiesInSight(t *testing.T) {
	behind := func(service *apiregistrationv1.ServiceReference) []client.Object {
		svc := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: service}}
		svc.Name = apiServiceName
		return []client.Object{svc}
	}
	for name, c := range map[string]struct {
		why  string
		have []client.Object
		want bool
	}{
		"aggregated": {"Calico's API server shows what v1 has", behind(&apiregistrationv1.ServiceReference{Namespace: "calico-system", Name: "calico-api"}), false},
		"local":      {"the API server itself serves the CRDs", behind(nil), true},
		"not there":  {"there is no v3, as another check says", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEffects(newFake().WithObjects(c.have...).Build(), Settings{Registry: resources.Default()})
			findings, err := s.door.copiesInSight().Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (len(findings) > 0) != c.want || c.want && !strings.Contains(findings[0].Message, "v3 see the copies") {
				t.Errorf("found %v, because %s", findings, c.why)
			}
		})
	}
}
