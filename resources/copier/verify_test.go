package copier_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/harness"
)

// Where v3 has nothing there is nothing to be in conflict with: before the first copy, that is nearly everywhere.
func TestConflictsReadsNoV1WhereV3IsEmpty(t *testing.T) {
	var read atomic.Int32
	s := newScene(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if gvk := list.GetObjectKind().GroupVersionKind(); gvk.Group == resources.V1Group && gvk.Kind == "IPReservationList" {
			read.Add(1)
		}
		return c.List(ctx, list, opts...)
	}})
	s.v1("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	look := func() int {
		t.Helper()
		found, err := s.copier.Compare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Conflicts)
	}
	if found := look(); found != 0 || read.Load() != 0 {
		t.Errorf("%d conflicts, and %d lists of v1; want none, nothing is in v3", found, read.Load())
	}
	s.v3("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [11.0.0.0/8]}")
	if found := look(); found != 1 || read.Load() == 0 {
		t.Errorf("%d conflicts, and %d lists of v1; want one conflict", found, read.Load())
	}
}

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
		harness.Eventually(t, "v3 from the CRDs", func() error {
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

// What admission makes of a copy is nobody's decision: it is named field by field, and never taken for proved. What it
// adds to the metadata is its own.
func TestWhatAdmissionReplacesIsNamed(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	labelling(t, "CREATE, UPDATE", `Object{metadata: Object.metadata{labels: {"team": "red", "audited": "yes"}}, spec: Object.spec{nets: ["1.1.1.1/32"]}}`)
	harness.Eventually(t, "the policy at work", func() error {
		labels, err := admitted(t.Context())
		if err == nil && labels["team"] != "red" {
			err = errors.New("not labelled")
		}
		return err
	})
	s.v1("GlobalNetworkSet", "metadata: {name: altered, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}")
	s.v1("GlobalNetworkSet", "metadata: {name: added, labels: {team: red}}\nspec: {nets: [1.1.1.1/32]}")
	nets := "spec.nets[0]"
	if os.Getenv(crds.EnvDir) != "" {
		nets = "spec.nets" // in Calico's CRDs it is a set, to which an apply configuration adds
	}
	want := map[string]string{"altered": "Altered metadata.labels.team " + nets}
	for _, when := range []string{"created", "looked at again"} {
		s.wantFindings(when, s.mustCopy().Altered, want)
	}
	v := s.mustVerify()
	s.wantFindings("verified", v.Altered, want)
	if v.OK() || !v.Accepted(true) || v.Same() != 1 {
		t.Errorf("equal %t, accepted by a waiver %t, the same %d; want false, true, 1", v.OK(), v.Accepted(true), v.Same())
	}
	digests := migrationv1.JoinDigests(v.Verified())
	if !strings.HasPrefix(digests, "GlobalNetworkSet=1+1:") {
		t.Errorf("verified: %q, want one object, and one that is not", digests)
	}
}
