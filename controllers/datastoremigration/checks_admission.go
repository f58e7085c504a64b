package datastoremigration

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/check"
)

// admissionKind is a kind of admission objects that come with Calico's v3 CRDs, and
// what becomes of a cluster without them.
type admissionKind struct {
	kind, plural string
	names        []string
	without      string
	// missing is how bad it is that one is not there though the API server has the kind.
	missing check.Level
}

// A migration needs none of them: what the mutating ones fill in, the conversion
// writes itself. What users write to v3 later is another matter.
var admissionKinds = []admissionKind{
	{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", []string{"protect-builtin-tiers.projectcalico.org"}, "nothing keeps users from deleting Calico's own tiers", check.Warning},
	{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", []string{"protect-builtin-tiers.projectcalico.org"}, "nothing keeps users from deleting Calico's own tiers", check.Warning},
	{"MutatingAdmissionPolicy", "mutatingadmissionpolicies", []string{"policytypes.policy.projectcalico.org", "tierlabel.policy.projectcalico.org"}, "policies that are written later get no types and no tier label", check.Failure},
	{"MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", []string{"set-policytypes-binding", "set-tier-label-binding"}, "policies that are written later get no types and no tier label", check.Failure},
}

func admissionRights() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, k := range admissionKinds {
		rules = append(rules, rule("get", admissionregistrationv1.GroupName, k.plural, k.names...)...)
	}
	return rules
}

// admissionPolicies tells which versions of admission policies are served, and where
// Calico's are not there.
func (s *preflight) admissionPolicies() check.Check {
	return check.Check{ID: "admission-policies", Title: "Calico's admission policies are there", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		served, err := s.discover(admissionregistrationv1.GroupName)
		if err != nil {
			return nil, err
		}
		var findings []check.Finding
		for _, k := range admissionKinds {
			versions := served[k.plural]
			if len(versions) == 0 {
				findings = append(findings, check.Finding{Level: check.Warning, Message: "the API server does not serve " + k.kind + ": " + k.without,
					Remedy: "see which Kubernetes serves it (docs/operate/supported-versions.md)"})
				continue
			}
			findings = append(findings, check.Finding{Level: check.Info, Message: k.kind + " is served in " + strings.Join(versionsOf(versions), ", ")})
			for _, name := range k.names {
				there, err := s.isThere(ctx, schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: versions[0].Version, Kind: k.kind}, name)
				if err != nil {
					return nil, err
				}
				if !there {
					findings = append(findings, check.Finding{Level: k.missing, Message: fmt.Sprintf("%s %s is not there: %s", k.kind, name, k.without),
						Remedy: "apply the admission policies of Calico's release (the copies do without them)"})
				}
			}
		}
		return findings, nil
	}}
}

func versionsOf(served []metav1.APIResource) []string {
	versions := make([]string, len(served))
	for i, r := range served {
		versions[i] = r.Version
	}
	return versions
}

func (s *preflight) isThere(ctx context.Context, gvk schema.GroupVersionKind, name string) (bool, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(gvk)
	obj, err := read(ctx, s.client, byName(name), obj, gvk.Kind+" "+name)
	return obj != nil, err
}
