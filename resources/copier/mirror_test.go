package copier_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/harness"
)

// The aggregated API server shows v1 itself under v3. Everything "is there already and equal" then: a
// copy that believes it would lose every object at clean-up.
func TestAMirrorIsNeverTakenForACopy(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	s.v1("Tier", "metadata: {name: security}\nspec: {order: 10}")
	stop, err := fakeapiserver.Start(t.Context(), live.Config, resources.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		svc := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: fakeapiserver.APIServiceName}}
		if err := live.Client.Delete(t.Context(), svc); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		harness.Eventually(t, "v3 from the CRDs", 30*time.Second, func() error {
			_, err := s.copier.Copy(t.Context(), nil)
			return err
		})
	}()
	const says = "shown by an aggregated API server"
	if _, err := s.copier.Copy(t.Context(), nil); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("Copy: %v; want an error with %q", err, says)
	}
	if _, err := s.copier.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("Verify: %v; want an error with %q", err, says)
	}
}
