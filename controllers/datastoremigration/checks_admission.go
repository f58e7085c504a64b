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

// admissionKind is a kind of admission objects that come with Calico's v3 CRDs.
type admissionKind struct {
	kind, plural string
	objects      []admissionObject
}

// admissionObject is one of them, and what becomes of a cluster without it.
type admissionObject struct {
	name, without string
	// missing is how bad it is that it is not there though the API server has the kind.
	missing check.Level
}

const (
	withoutTiers  = "nothing keeps users from deleting Calico's own tiers"
	withoutTypes  = "policies that are written later get no types and no tier label"
	withoutBlocks = "pools that are written later get no blockSize, as with Calico up to 3.33, which has no such policy"
)

// A migration needs none of them: what the mutating ones fill in, the conversion
// writes itself, or it means the same if it is absent. What users write to v3 later is another matter.
var admissionKinds = []admissionKind{
	{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", []admissionObject{{"protect-builtin-tiers.projectcalico.org", withoutTiers, check.Warning}}},
	{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", []admissionObject{{"protect-builtin-tiers.projectcalico.org", withoutTiers, check.Warning}}},
	{"MutatingAdmissionPolicy", "mutatingadmissionpolicies", []admissionObject{
		{"policytypes.policy.projectcalico.org", withoutTypes, check.Failure}, {"tierlabel.policy.projectcalico.org", withoutTypes, check.Failure},
		{"ippool.policy.projectcalico.org", withoutBlocks, check.Info},
	}},
	{"MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", []admissionObject{
		{"set-policytypes-binding", withoutTypes, check.Failure}, {"set-tier-label-binding", withoutTypes, check.Failure},
		{"set-ippool-defaults-binding", withoutBlocks, check.Info},
	}},
}

func admissionRights() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, k := range admissionKinds {
		names := make([]string, len(k.objects))
		for i, o := range k.objects {
			names[i] = o.name
		}
		rules = append(rules, rule("get", admissionregistrationv1.GroupName, k.plural, names...)...)
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
				findings = append(findings, check.Finding{Level: check.Warning, Message: "the API server does not serve " + k.kind + ": " + k.objects[0].without,
					Remedy: "see which Kubernetes serves it (docs/operate/supported-versions.md)"})
				continue
			}
			findings = append(findings, check.Finding{Level: check.Info, Message: k.kind + " is served in " + strings.Join(versionsOf(versions), ", ")})
			for _, o := range k.objects {
				there, err := s.isThere(ctx, schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: versions[0].Version, Kind: k.kind}, o.name)
				if err != nil {
					return nil, err
				}
				if !there {
					findings = append(findings, check.Finding{Level: o.missing, Message: fmt.Sprintf("%s %s is not there: %s", k.kind, o.name, o.without),
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
