package datastoremigration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/resources"
)

func TestSlowWebhooks(t *testing.T) {
	type operations = []admissionregistrationv1.OperationType
	rule := func(ops operations, group, resource string, scope ...admissionregistrationv1.ScopeType) admissionregistrationv1.RuleWithOperations {
		r := admissionregistrationv1.RuleWithOperations{Operations: ops,
			Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps", group}, APIVersions: []string{"v1beta1"}, Resources: []string{"deployments", resource}}}
		if len(scope) > 0 {
			r.Scope = &scope[0]
		}
		return r
	}
	all, del := operations{admissionregistrationv1.OperationAll}, operations{admissionregistrationv1.Delete}
	const group = resources.V1Group
	when := func(expression string) []admissionregistrationv1.MatchCondition {
		return []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
	}
	cases := map[string]struct {
		why  string
		hook admissionregistrationv1.ValidatingWebhook
		rule admissionregistrationv1.RuleWithOperations
		want time.Duration // 0: it is not asked
	}{
		"of everything":    {why: "a policy engine, say; the default of its timeout", rule: rule(all, "*", "*"), want: 10 * time.Second},
		"its own timeout":  {why: "it says so", rule: rule(all, group, "*"), hook: admissionregistrationv1.ValidatingWebhook{TimeoutSeconds: new(int32(3))}, want: 3 * time.Second},
		"deletions":        {why: "they may land late, too", rule: rule(del, group, "ippools"), want: 10 * time.Second},
		"a status":         {why: "it is copied", rule: rule(all, group, "*/status"), want: 10 * time.Second},
		"the lock itself":  {why: "it is written by others", rule: rule(all, group, "clusterinformations"), want: 10 * time.Second},
		"connects":         {why: "nothing is written", rule: rule(operations{admissionregistrationv1.Connect}, "*", "*")},
		"another group":    {why: "v3 is another matter", rule: rule(all, resources.V3Group, "*")},
		"another resource": {why: "it is no kind of ours", rule: rule(all, group, "profiles")},
		"another scope":    {why: "pools are in no namespace", rule: rule(all, group, "ippools", admissionregistrationv1.NamespacedScope)},
		"its scope":        {why: "pools are in no namespace", rule: rule(all, group, "ippools", admissionregistrationv1.ClusterScope), want: 10 * time.Second},
		"some namespaces":  {why: "a selector narrows it, and nobody knows how far", rule: rule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, want: 10 * time.Second},
		"left out":         {why: "as the documents say", rule: rule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when(notV1)}},
		"left out as well": {why: "the same in other words", rule: rule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when("request.resource.group!='crd.projectcalico.org'")}},
		"some left out":    {why: "another condition may be met", rule: rule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when("request.operation != 'DELETE'")}, want: 10 * time.Second},
	}
	for name, c := range cases {
		c.hook.Name, c.hook.Rules = "h", []admissionregistrationv1.RuleWithOperations{c.rule}
		config := admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{c.hook}}
		got := longestDelay(slowWebhooksIn([]admissionregistrationv1.ValidatingWebhookConfiguration{config}, resources.Default().All()))
		if got != c.want {
			t.Errorf("%s: %s, want %s: %s", name, got, c.want, c.why)
		}
	}
	two := []admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
		{Name: "fast", TimeoutSeconds: new(int32(2)), Rules: []admissionregistrationv1.RuleWithOperations{rule(all, "*", "*")}},
		{Name: "slow", TimeoutSeconds: new(int32(30)), Rules: []admissionregistrationv1.RuleWithOperations{rule(all, "*", "*")}},
	}}}
	var names []string
	for _, hook := range slowWebhooksIn(two, resources.Default().All()) {
		names = append(names, hook.String())
	}
	want := []string{"slow (ValidatingWebhookConfiguration c), timeoutSeconds 30", "fast (ValidatingWebhookConfiguration c), timeoutSeconds 2"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("they are asked at the same time: the longest counts (-want +got):\n%s", diff)
	}
}
