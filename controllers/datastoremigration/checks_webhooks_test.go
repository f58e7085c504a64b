package datastoremigration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// webhookRule is of one resource among others.
func webhookRule(ops []admissionregistrationv1.OperationType, group, resource string, scope ...admissionregistrationv1.ScopeType) admissionregistrationv1.RuleWithOperations {
	r := admissionregistrationv1.RuleWithOperations{Operations: ops,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps", group}, APIVersions: []string{"v1beta1"}, Resources: []string{"deployments", resource}}}
	if len(scope) > 0 {
		r.Scope = &scope[0]
	}
	return r
}

// configured are webhooks of one configuration, each with the rule.
func configured(rule admissionregistrationv1.RuleWithOperations, hooks ...admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.ValidatingWebhookConfiguration {
	for i := range hooks {
		hooks[i].Rules = []admissionregistrationv1.RuleWithOperations{rule}
	}
	return []admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: hooks}}
}

func TestSlowWebhooks(t *testing.T) {
	type operations = []admissionregistrationv1.OperationType
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
		"of everything":    {why: "a policy engine, say; the default of its timeout", rule: webhookRule(all, "*", "*"), want: 10 * time.Second},
		"its own timeout":  {why: "it says so", rule: webhookRule(all, group, "*"), hook: admissionregistrationv1.ValidatingWebhook{TimeoutSeconds: new(int32(3))}, want: 3 * time.Second},
		"deletions":        {why: "they may land late, too", rule: webhookRule(del, group, "ippools"), want: 10 * time.Second},
		"a status":         {why: "it is copied", rule: webhookRule(all, group, "*/status"), want: 10 * time.Second},
		"the lock itself":  {why: "it is written by others", rule: webhookRule(all, group, "clusterinformations"), want: 10 * time.Second},
		"connects":         {why: "nothing is written", rule: webhookRule(operations{admissionregistrationv1.Connect}, "*", "*")},
		"another group":    {why: "v3 is another matter", rule: webhookRule(all, resources.V3Group, "*")},
		"another resource": {why: "it is no kind of ours", rule: webhookRule(all, group, "profiles")},
		"another scope":    {why: "pools are in no namespace", rule: webhookRule(all, group, "ippools", admissionregistrationv1.NamespacedScope)},
		"its scope":        {why: "pools are in no namespace", rule: webhookRule(all, group, "ippools", admissionregistrationv1.ClusterScope), want: 10 * time.Second},
		"some namespaces":  {why: "a selector narrows it, and nobody knows how far", rule: webhookRule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, want: 10 * time.Second},
		"left out":         {why: "as the documents say", rule: webhookRule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when(notV1)}},
		"left out as well": {why: "the same in other words", rule: webhookRule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when("request.resource.group!='crd.projectcalico.org'")}},
		"some left out":    {why: "another condition may be met", rule: webhookRule(all, "*", "*"), hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: when("request.operation != 'DELETE'")}, want: 10 * time.Second},
	}
	for name, c := range cases {
		c.hook.Name = "h"
		got := longestDelay(slowWebhooksIn(configured(c.rule, c.hook), resources.Default().All()))
		if got != c.want {
			t.Errorf("%s: %s, want %s: %s", name, got, c.want, c.why)
		}
	}
	two := configured(webhookRule(all, "*", "*"), admissionregistrationv1.ValidatingWebhook{Name: "fast", TimeoutSeconds: new(int32(2))}, admissionregistrationv1.ValidatingWebhook{Name: "slow", TimeoutSeconds: new(int32(30))})
	var names []string
	for _, hook := range slowWebhooksIn(two, resources.Default().All()) {
		names = append(names, hook.String())
	}
	want := []string{"slow (ValidatingWebhookConfiguration c), timeoutSeconds 30", "fast (ValidatingWebhookConfiguration c), timeoutSeconds 2"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("they are asked at the same time: the longest counts (-want +got):\n%s", diff)
	}
}

// What a migration will have to write in v3 is tried where v3 can be reached; where it cannot, a person decides.
func TestTryV3Writes(t *testing.T) {
	open, closed := true, false
	denied := func(verb string) string {
		return "ClusterInformation default: " + verb + ` is refused: admission webhook "h" denied the request: no; let this account pass what refuses it`
	}
	cases := map[string]struct {
		why     string
		before  before
		hook    bool // there is a webhook on v3, which refuses everything
		waived  bool
		owned   bool // a v1 object has an owner in Calico
		refused []string
	}{
		"nobody is asked":   {why: "there is no webhook", before: before{v1: &open}, refused: []string{}},
		"out of reach":      {why: "a refusal under the lock could keep it", before: before{v1: &open}, hook: true, refused: []string{"the webhook h (ValidatingWebhookConfiguration c) may refuse"}},
		"waived":            {why: "a person has decided", before: before{v1: &open}, hook: true, waived: true, refused: []string{}},
		"no lock there":     {why: "it would be created", before: before{v1: &open, disabled: true}, hook: true, refused: []string{denied("create")}},
		"a lock of ours":    {why: "it is opened, or deleted", before: before{v1: &open, v3: &closed, disabled: true}, hook: true, refused: []string{denied("patch"), denied("delete")}},
		"a lock of another": {why: "it is closed and opened, and stays", before: before{v1: &open, v3: &open, disabled: true}, hook: true, refused: []string{denied("patch")}},
		"all pass":          {why: "nothing is refused", before: before{v1: &open, v3: &closed, disabled: true}, owned: true, refused: []string{}},
		"an owner in v1": {why: "it is taken off under the lock", before: before{v1: &open}, hook: true, waived: true, owned: true,
			refused: []string{"GlobalNetworkPolicy /t.p cannot be detached from its owner in Calico, a dry run was refused: admission webhook"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cl := newFake().WithStatusSubresource(&migration{}).Build()
			dm, err := c.before.build(t.Context(), cl, 1)
			must(t, err)
			if c.hook {
				all := []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
				must(t, cl.Create(t.Context(), &configured(webhookRule(all, "*", "*"), admissionregistrationv1.ValidatingWebhook{Name: "h"})[0]))
			}
			if c.owned {
				must(t, cl.Create(t.Context(), ownedPolicy()))
			}
			if c.waived {
				dm.Annotations = map[string]string{migrationv1.AnnotationWaive: migrationv1.Waiver(webhooksCheck, dm.UID)}
			}
			out, err := once(t, refusingDryRuns(c.hook, cl), dm, "TryV3Writes", nil)
			must(t, err)
			got, _ := out["refused"].([]string)
			same := func(want, got string) bool { return want == got || strings.HasPrefix(got, want) }
			if got == nil || !slices.EqualFunc(c.refused, got, same) {
				t.Errorf("refused %q, want %q: %s", got, c.refused, c.why)
			}
		})
	}
}

// refusingDryRuns answers for a webhook, with a reason of its own.
func refusingDryRuns(refuse bool, c client.WithWatch) client.WithWatch {
	answer := func(dryRun []string, do func() error) error {
		if len(dryRun) == 0 || !refuse {
			return do()
		}
		return &apierrs.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Reason: metav1.StatusReasonMethodNotAllowed, Message: `admission webhook "h" denied the request: no`}}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return answer((&client.CreateOptions{}).ApplyOptions(opts).DryRun, func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return answer((&client.PatchOptions{}).ApplyOptions(opts).DryRun, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return answer((&client.DeleteOptions{}).ApplyOptions(opts).DryRun, func() error { return c.Delete(ctx, obj, opts...) })
		},
	})
}

func TestWebhooksOn(t *testing.T) {
	type operations = []admissionregistrationv1.OperationType
	change := operations{admissionregistrationv1.Update}
	cases := map[string]struct {
		why  string
		rule admissionregistrationv1.RuleWithOperations
		want bool
	}{
		"Calico's":       {"it is made for this", webhookRule(change, "projectcalico.org", "networkpolicies"), true},
		"of everything":  {"a policy engine, say", webhookRule(operations{admissionregistrationv1.OperationAll}, "*", "*"), true},
		"subresources":   {"includes the resources themselves", webhookRule(change, "projectcalico.org", "*/*"), true},
		"connects":       {"nobody connects to a policy", webhookRule(operations{admissionregistrationv1.Connect}, "*", "*"), false},
		"another group":  {"v1 is not written by it", webhookRule(change, "crd.projectcalico.org", "*"), false},
		"an unknown one": {"this program does not write it", webhookRule(change, "projectcalico.org", "profiles"), false},
	}
	for name, c := range cases {
		var want []string
		if c.want {
			want = []string{"h (ValidatingWebhookConfiguration c)"}
		}
		if diff := cmp.Diff(want, webhooksOn(configured(c.rule, admissionregistrationv1.ValidatingWebhook{Name: "h"}), []string{"clusterinformations", "networkpolicies"})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}
