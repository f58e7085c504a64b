package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
)

// An API server asks validating webhooks after the policies that the fence is made of, with timeoutSeconds for each and all
// at the same time. So a write that the fence has let in just before the lock may wait in them, and is stored when v1
// is closed. Mutating webhooks are asked before the policies: they delay nothing that the fence has let in.

// v1WebhooksCheck is the id of the check about webhooks that are asked about writes of v1.
const v1WebhooksCheck = "v1-webhooks"

// webhookTimeout is what kube-apiserver takes where a webhook says nothing.
const webhookTimeout = 10 * time.Second

func webhookRights() []rbacv1.PolicyRule {
	return rule("list", admissionregistrationv1.GroupName, "validatingwebhookconfigurations")
}

func (c *cluster) validatingWebhooks(ctx context.Context) ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list ValidatingWebhookConfigurations: %w", err)
	}
	return list.Items, nil
}

// slowWebhook is a webhook in which a write of v1 may wait.
type slowWebhook struct {
	name    string // with that of its configuration
	timeout time.Duration
}

func (h slowWebhook) String() string {
	return fmt.Sprintf("%s, timeoutSeconds %.0f", h.name, h.timeout.Seconds())
}

// slowWebhooks are those that may be asked about a write of v1, the one with the longest timeout first.
func (c *cluster) slowWebhooks(ctx context.Context) ([]slowWebhook, error) {
	configs, err := c.validatingWebhooks(ctx)
	return slowWebhooksIn(configs, c.registry.All()), err
}

// slowWebhooksIn goes by the rules. Selectors and conditions only narrow them, by the object or its namespace; the one
// condition that leaves out the whole group is heeded.
func slowWebhooksIn(configs []admissionregistrationv1.ValidatingWebhookConfiguration, kinds []*resources.Kind) (slow []slowWebhook) {
	for _, config := range configs {
		for _, hook := range config.Webhooks {
			matches := func(r admissionregistrationv1.RuleWithOperations) bool { return writesV1(r, kinds) }
			if !slices.ContainsFunc(hook.Rules, matches) || slices.ContainsFunc(hook.MatchConditions, leavesV1Out) {
				continue
			}
			one := slowWebhook{name: webhookName(&config, hook.Name), timeout: webhookTimeout}
			if hook.TimeoutSeconds != nil {
				one.timeout = time.Duration(*hook.TimeoutSeconds) * time.Second
			}
			slow = append(slow, one)
		}
	}
	slices.SortFunc(slow, func(a, b slowWebhook) int {
		return cmp.Or(cmp.Compare(b.timeout, a.timeout), cmp.Compare(a.name, b.name))
	})
	return slow
}

func webhookName(config *admissionregistrationv1.ValidatingWebhookConfiguration, hook string) string {
	return fmt.Sprintf("%s (ValidatingWebhookConfiguration %s)", hook, config.Name)
}

// isWrite is false for what changes no object.
func isWrite(op admissionregistrationv1.OperationType) bool {
	return op != admissionregistrationv1.Connect
}

// writesV1 tells whether a rule is about a write of one of these kinds, or of its status.
func writesV1(r admissionregistrationv1.RuleWithOperations, kinds []*resources.Kind) bool {
	in := func(all []string, name string) bool { return slices.Contains(all, "*") || slices.Contains(all, name) }
	if !slices.ContainsFunc(r.Operations, isWrite) || !in(r.APIGroups, resources.V1Group) {
		return false
	}
	return slices.ContainsFunc(kinds, func(kind *resources.Kind) bool {
		if r.Scope != nil && *r.Scope != admissionregistrationv1.AllScopes && (*r.Scope == admissionregistrationv1.NamespacedScope) != kind.Namespaced() {
			return false
		}
		return slices.ContainsFunc(r.Resources, func(name string) bool {
			name, _, _ = strings.Cut(name, "/")
			return name == "*" || name == kind.V1Plural()
		})
	})
}

// notV1 is the condition that the documents give to people.
const notV1 = `request.resource.group != "` + resources.V1Group + `"`

func leavesV1Out(c admissionregistrationv1.MatchCondition) bool {
	same := func(text string) string { return strings.ReplaceAll(strings.Join(strings.Fields(text), ""), "'", `"`) }
	return same(c.Expression) == same(notV1)
}

// longestDelay is how long a write that was let in may wait, in webhooks that are asked at the same time.
func longestDelay(slow []slowWebhook) time.Duration {
	if len(slow) == 0 {
		return 0
	}
	return slow[0].timeout
}

// v1Webhooks names the webhooks that make the lock longer.
func (c *cluster) v1Webhooks() check.Check {
	return check.Check{ID: v1WebhooksCheck, Title: "no webhook delays writes of v1", Run: func(ctx context.Context) ([]check.Finding, error) {
		slow, err := c.slowWebhooks(ctx)
		if err != nil || len(slow) == 0 {
			return nil, err
		}
		return []check.Finding{{Level: check.Warning,
			Message: fmt.Sprintf("v1 stays locked for %s longer, because a write that was let in before may wait in a webhook that is asked about writes of %s: %s",
				longestDelay(slow), resources.V1Group, strings.Join(examples(slow, slowWebhook.String), "; ")),
			Remedy: "leave the group out of its rules, or give it the matchCondition " + notV1}}, nil
	}}
}
