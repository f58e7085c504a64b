package datastoremigration

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
)

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
		refused []string
	}{
		"nobody is asked":   {why: "there is no webhook", before: before{v1: &open}, refused: []string{}},
		"out of reach":      {why: "a refusal under the lock could keep it", before: before{v1: &open}, hook: true, refused: []string{"the webhook h (ValidatingWebhookConfiguration c) may refuse"}},
		"waived":            {why: "a person has decided", before: before{v1: &open}, hook: true, waived: true, refused: []string{}},
		"no lock there":     {why: "it would be created", before: before{v1: &open, parked: true}, hook: true, refused: []string{denied("create")}},
		"a lock of ours":    {why: "it is opened, or deleted", before: before{v1: &open, v3: &closed, parked: true}, hook: true, refused: []string{denied("patch"), denied("delete")}},
		"a lock of another": {why: "it is closed and opened, and stays", before: before{v1: &open, v3: &open, parked: true}, hook: true, refused: []string{denied("patch")}},
		"all pass":          {why: "nothing is refused", before: before{v1: &open, v3: &closed, parked: true}, refused: []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cl := newFake().WithStatusSubresource(&migration{}).Build()
			dm, err := c.before.build(t.Context(), cl, 1)
			must(t, err)
			if c.hook {
				must(t, cl.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"},
					Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "h", Rules: []admissionregistrationv1.RuleWithOperations{{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}}}}}}}))
			}
			if c.waived {
				dm.Annotations = map[string]string{migrationv1.AnnotationWaive: migrationv1.Waiver(webhooksCheck, dm.UID)}
			}
			out, err := runner.Once(t.Context(), refusingDryRuns(c.hook, cl), dm, actionOn(refusingDryRuns(c.hook, cl), "TryV3Writes"), nil, clock.RealClock{})
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
