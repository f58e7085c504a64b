package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// Flavour is which program the proxies run.
type Flavour string

const (
	// Phasegate is the proxy of this project, and the zero value's meaning. It passes
	// requests on, and refuses what asks for more.
	Phasegate Flavour = "phasegate"
	// ToolHive is ToolHive's own proxyrunner, which package toolhive writes for.
	ToolHive Flavour = "toolhive"
)

// Flavours are all of them.
var Flavours = []Flavour{Phasegate, ToolHive}

// toolHiveKinds are those of the configurations that ToolHive's proxyrunner is given,
// besides those that any flavour looks at.
var toolHiveKinds = []v1alpha1.Watch{
	{APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPOIDCConfig"},
	{APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPAuthzConfig"},
	{APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPTelemetryConfig"},
	{APIVersion: webhookVersion, Kind: webhookKind},
}

// MCPWebhookConfig is younger than the others, and served in no other version.
const (
	webhookKind    = "MCPWebhookConfig"
	webhookVersion = "toolhive.stacklok.dev/v1alpha1"
)

// NeedsOf is all that the controller must be allowed to do with a flavour of proxies.
func NeedsOf(proxy Flavour, machine *fsm.Machine, resources rbac.Resources) []rbac.Need {
	return Program(nil, Settings{Proxy: proxy}).Needs(machine, resources)
}

// watches are those that the machine file does not have, since one flavour alone needs them.
func (f Flavour) watches() []v1alpha1.Watch {
	if f == ToolHive {
		return toolHiveKinds
	}
	return nil
}

// configRights are those to the configurations.
func (f Flavour) configRights() []rbacv1.PolicyRule {
	kinds := []string{"mcptoolconfigs", "mcpexternalauthconfigs", "mcpgroups"}
	if f != ToolHive {
		return []rbacv1.PolicyRule{on("get", v1beta1.GroupVersion.Group, kinds...)}
	}
	kinds = append(kinds, "mcpoidcconfigs", "mcpauthzconfigs", "mcptelemetryconfigs", "mcpwebhookconfigs")
	return []rbacv1.PolicyRule{
		on("get", v1beta1.GroupVersion.Group, kinds...),
		on("get", corev1.GroupName, "configmaps"), // policies, and certificates of authorities
	}
}
