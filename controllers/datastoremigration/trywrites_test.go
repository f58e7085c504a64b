package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWebhooksOn(t *testing.T) {
	type operations = []admissionregistrationv1.OperationType
	rule := func(ops operations, group, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Operations: ops,
			Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps", group}, APIVersions: []string{"v3"}, Resources: []string{"deployments", resource}}}
	}
	change := operations{admissionregistrationv1.Update}
	cases := map[string]struct {
		why  string
		rule admissionregistrationv1.RuleWithOperations
		want bool
	}{
		"Calico's":       {"it is made for this", rule(change, "projectcalico.org", "networkpolicies"), true},
		"of everything":  {"a policy engine, say", rule(operations{admissionregistrationv1.OperationAll}, "*", "*"), true},
		"subresources":   {"includes the resources themselves", rule(change, "projectcalico.org", "*/*"), true},
		"connects":       {"nobody connects to a policy", rule(operations{admissionregistrationv1.Connect}, "*", "*"), false},
		"another group":  {"v1 is not written by it", rule(change, "crd.projectcalico.org", "*"), false},
		"an unknown one": {"this program does not write it", rule(change, "projectcalico.org", "profiles"), false},
	}
	for name, c := range cases {
		config := admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "h", Rules: []admissionregistrationv1.RuleWithOperations{c.rule}}}}
		var want []string
		if c.want {
			want = []string{"h (ValidatingWebhookConfiguration c)"}
		}
		if diff := cmp.Diff(want, webhooksOn([]admissionregistrationv1.ValidatingWebhookConfiguration{config}, []string{"clusterinformations", "networkpolicies"})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}
