package api_test

import (
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// wider lists where ours takes what the peer refuses, with the reasons.
var wider = []listed{
	{why: "the manager reads them for ToolHive's proxy, strictly, or refuses the server", what: []string{
		".spec.audit: is kept whole", ".spec.authServerRef: is kept whole", ".spec.authzConfig: is kept whole", ".spec.authzConfigRef: is kept whole",
		".spec.groupRef: is kept whole", ".spec.oidcConfigRef: is kept whole", ".spec.rateLimiting: is kept whole",
		".spec.telemetryConfigRef: is kept whole", ".spec.webhookConfigRef: is kept whole",
	}},
	{why: "the peer's rules for it are newer than the manager's, which refuses what it cannot read", has: "maxRequestBodySize", what: []string{
		".spec.sessionStorage.tls: is kept whole",
	}},
	{why: "v0.63.0 of the peer has them; one that does not prunes them", has: "!maxRequestBodySize", what: []string{
		".spec.resourceOverrides.proxyDeployment: affinity is ours only", ".spec.resourceOverrides.proxyDeployment: nodeSelector is ours only",
		".spec.resourceOverrides.proxyDeployment: tolerations is ours only",
		".spec.sessionStorage: tls is ours only", ".spec: maxRequestBodySize is ours only", ".spec: proxyReadTimeout is ours only",
	}},
	{why: "the peer's chart has one value for all proxies", what: []string{".spec.resourceOverrides.proxyDeployment: resources is ours only"}},
	{why: "older releases of the peer have them: kept, so that the server is refused and not served without protection", what: []string{
		".spec: oidcConfig is ours only", ".spec: tools is ours only",
	}},
	{why: "the names of phases belong to the machine file", what: []string{".status.phase: takes any value"}},
	{why: "the run, for people", what: []string{".status: machine is ours only"}},
}

// A manifest that ours takes is taken by the peer, too, so that the way back is open: fields, required fields, values and
// bounds. Lists, defaults and types are equal (TestSchemaIsNotNarrower).
func TestSchemaIsNotWider(t *testing.T) {
	compareAll(t, wider, comparison.wider)
}

func (c comparison) wider(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	if len(theirs.Properties) > 0 && len(ours.Properties) == 0 {
		c.note(path, "is kept whole")
		return
	}
	c.takesMore(path, theirs, ours)
	for name := range maps.Keys(ours.Properties) {
		if peers, known := theirs.Properties[name]; known {
			c.wider(path+"."+name, peers, ours.Properties[name])
		} else {
			c.note(path, "%s is ours only", name)
		}
	}
	for name := range maps.Keys(theirs.Properties) {
		if _, known := ours.Properties[name]; !known {
			c.note(path, "%s is not known", name)
		}
	}
	if theirs.Items != nil && ours.Items != nil {
		c.wider(path+"[]", *theirs.Items.Schema, *ours.Items.Schema)
	}
}

// takesMore compares one value.
func (c comparison) takesMore(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	for _, field := range theirs.Required {
		if !slices.Contains(ours.Required, field) {
			c.note(path, "%s is not required", field)
		}
	}
	for _, value := range ours.Enum {
		if len(theirs.Enum) > 0 && !slices.ContainsFunc(theirs.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			c.note(path, "%s is taken", value.Raw)
		}
	}
	if len(ours.Enum) == 0 && len(theirs.Enum) > 0 {
		c.note(path, "takes any value")
	}
	if theirs.Pattern != "" && ours.Pattern != theirs.Pattern {
		c.note(path, "pattern %s is not asked for", theirs.Pattern)
	}
}
