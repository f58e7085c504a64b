package copier_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// What admission makes of a copy is nobody's decision: it is named field by field, and never taken for proved. What it
// adds to the metadata is its own.
func TestWhatAdmissionReplacesIsNamed(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	labelling(t, "CREATE, UPDATE", `Object{metadata: Object.metadata{labels: {"team": "red", "audited": "yes"}}, spec: Object.spec{nets: ["1.1.1.1/32"]}}`)
	harness.Eventually(t, "the policy at work", 30*time.Second, func() error {
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
