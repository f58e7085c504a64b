package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithoutPolicies(t *testing.T) {
	both := []string{ValidatingPolicies, MutatingPolicies}
	validating := []string{
		"--disable-admission-plugins=ValidatingAdmissionPolicy",
		"--runtime-config=admissionregistration.k8s.io/v1/validatingadmissionpolicies=false,admissionregistration.k8s.io/v1/validatingadmissionpolicybindings=false",
	}
	tests := map[string]struct {
		minor int
		kinds []string
		want  []string
		why   string
	}{
		"all is served":  {minor: 37, why: "nothing is to be left out"},
		"none of both":   {minor: 29, kinds: both, why: "neither is there in v1, and an unknown plugin is refused"},
		"one is too new": {minor: 30, kinds: both, want: validating, why: "1.30 has no plugin MutatingAdmissionPolicy"},
		"not by default": {minor: 35, kinds: []string{MutatingPolicies}, why: "before 1.36 it is off anyway, and v1 has no such resource"},
		"both are there": {minor: 36, kinds: both, want: []string{
			"--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
			validating[1] + ",admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
		}, why: "each is on by default"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, withoutPolicies(tc.minor, tc.kinds...)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
