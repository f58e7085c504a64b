package api_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// peersCRDs names a directory with the CRDs of ToolHive's operator, which are not
// a part of this repository.
const peersCRDs = "TOOLHIVE_CRDS"

const crdFile = "toolhive.stacklok.dev_mcpservers.yaml"

func readCRD(t *testing.T, dir string) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, crdFile))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func both(t *testing.T) (theirs, ours apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	dir := os.Getenv(peersCRDs)
	if dir == "" {
		t.Skipf("%s does not name a directory with the peer's CRDs", peersCRDs)
	}
	return readCRD(t, dir), readCRD(t, filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds"))
}

// Scripts find servers by these, and a cluster has one CRD of the name only.
func TestSameOutside(t *testing.T) {
	theirs, ours := both(t)
	type outside struct {
		Name, Group string
		Scope       apiextensionsv1.ResourceScope
		Names       apiextensionsv1.CustomResourceDefinitionNames
		Labels      map[string]string
		Versions    []any
	}
	of := func(crd apiextensionsv1.CustomResourceDefinition) outside {
		o := outside{Name: crd.Name, Group: crd.Spec.Group, Scope: crd.Spec.Scope, Names: crd.Spec.Names, Labels: crd.Labels}
		for _, v := range crd.Spec.Versions {
			o.Versions = append(o.Versions, v.Name, v.Served, v.Storage, v.Deprecated, v.AdditionalPrinterColumns, v.Subresources)
		}
		return o
	}
	if len(theirs.Spec.Names.ShortNames) == 0 { // since v0.63.0; those that were are the plural and the singular
		ours.Spec.Names.ShortNames = nil
	}
	if diff := cmp.Diff(of(theirs), of(ours)); diff != "" {
		t.Errorf("(-theirs +ours):\n%s", diff)
	}
}

// listed are differences, and why there are.
type listed struct {
	why  string
	what []string
	// has is a field of the spec: the peer's release has it, or, after a "!", has it not. Empty: any release.
	has string
}

// expected are the differences of all groups that hold for this release of the peer.
func expected(groups []listed, theirs apiextensionsv1.CustomResourceDefinitionVersion) map[string]bool {
	all := map[string]bool{}
	for _, group := range groups {
		field, not := strings.CutPrefix(group.has, "!")
		if _, has := theirs.Schema.OpenAPIV3Schema.Properties["spec"].Properties[field]; field != "" && has == not {
			continue
		}
		for _, difference := range group.what {
			all[difference] = true
		}
	}
	return all
}

// narrower lists the differences that a manifest could notice, with the reasons.
var narrower = []listed{
	{why: "a server without a spec, or of such a name, cannot work: see the messages", what: []string{": 5 rules"}},
	{why: "the same, of a server without an image", what: []string{".spec.image: minLength 1"}},
	{why: "the peer's rules in other words", what: []string{".spec: 2 rules", ".spec.sessionStorage: 1 rules"}},
	{why: "the peer refuses it later, in its operator", what: []string{
		".spec.env: 2 rules", ".spec.env[].name: 1 rules", ".spec.resources.limits.cpu: 1 rules", ".spec.resources.limits.memory: 1 rules",
		".spec.resources.requests.cpu: 1 rules", ".spec.resources.requests.memory: 1 rules",
	}},
	{why: "the API server refuses the pods later, where nobody looks", what: []string{
		".spec.resourceOverrides.proxyDeployment.env[].name: 1 rules", ".spec.resources: 2 rules",
		".spec.secrets[].key: minLength 1", ".spec.secrets[].name: minLength 1", ".spec.secrets[].targetEnvName: 1 rules",
		".spec.volumes[].hostPath: 1 rules", ".spec.volumes[].mountPath: 1 rules", ".spec.volumes[].name: 1 rules", ".spec.volumes[].name: maxLength 63",
	}},
	{why: "what a rule reads must be bounded; manifests are far below", what: []string{
		".spec.env: maxItems 256", ".spec.env[].name: maxLength 1024", ".spec.env[].value: maxLength 65536",
		".spec.resourceOverrides.proxyDeployment.env: maxItems 256", ".spec.resourceOverrides.proxyDeployment.env[].name: maxLength 1024",
		".spec.resourceOverrides.proxyDeployment.env[].value: maxLength 65536",
		".spec.resources.limits.cpu: maxLength 64", ".spec.resources.limits.memory: maxLength 64",
		".spec.resources.requests.cpu: maxLength 64", ".spec.resources.requests.memory: maxLength 64",
		".spec.secrets: maxItems 256", ".spec.secrets[].targetEnvName: maxLength 1024",
		".spec.volumes: maxItems 128", ".spec.volumes[].hostPath: maxLength 4096", ".spec.volumes[].mountPath: maxLength 4096",
	}},
	{why: "the same, of a field that v0.63.0 has", has: "maxRequestBodySize", what: []string{".spec.resourceOverrides.proxyDeployment.tolerations: maxItems 256"}},
	{why: "only our controller writes the status, and keeps to these", what: []string{
		".status.conditions: maxItems 64", ".status.externalAuthConfigHash: maxLength 80", ".status.message: maxLength 1024",
		".status.observedGeneration: minimum -1", ".status.phase: maxLength 63", ".status.phase: pattern ^[A-Za-z][A-Za-z0-9_-]*$",
		".status.authServerConfigHash: maxLength 80", ".status.authzConfigHash: maxLength 80", ".status.oidcConfigHash: maxLength 80",
		".status.telemetryConfigHash: maxLength 80", ".status.webhookConfigHash: maxLength 80",
		".status.toolConfigHash: maxLength 80", ".status.url: maxLength 2048",
	}},
}

// Every manifest that the peer takes must be taken, with the same meaning. Ours
// may take more.
func TestSchemaIsNotNarrower(t *testing.T) {
	compareAll(t, narrower, comparison.schema)
}

// compareAll looks at each version: every difference is listed, and every listed one is there.
func compareAll(t *testing.T, groups []listed, compare func(c comparison, path string, theirs, ours apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	theirs, ours := both(t)
	for i, v := range theirs.Spec.Versions {
		c := comparison{found: map[string]bool{}}
		compare(c, "", *v.Schema.OpenAPIV3Schema, *ours.Spec.Versions[i].Schema.OpenAPIV3Schema)
		if diff := cmp.Diff(expected(groups, v), c.found); diff != "" {
			t.Errorf("%s (-listed with a reason +found):\n%s", v.Name, diff)
		}
	}
}

// comparison collects where ours takes less than theirs, or means something else.
type comparison struct{ found map[string]bool }

func (c comparison) note(path, format string, args ...any) {
	c.found[path+": "+fmt.Sprintf(format, args...)] = true
}

func (c comparison) schema(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	c.meaning(path, theirs, ours)
	c.bounds(path, theirs, ours)
	for _, field := range ours.Required {
		if !slices.Contains(theirs.Required, field) {
			c.note(path, "%s is required", field)
		}
	}
	for name := range maps.Keys(theirs.Properties) {
		if mine, known := ours.Properties[name]; known {
			c.schema(path+"."+name, theirs.Properties[name], mine)
		} else if ours.XPreserveUnknownFields == nil {
			c.note(path, "%s is not kept", name)
		}
	}
	if theirs.Items != nil && ours.Items != nil {
		c.schema(path+"[]", *theirs.Items.Schema, *ours.Items.Schema)
	}
}

// meaning is what must be the same.
func (c comparison) meaning(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	type same struct {
		Type, Format string
		Default      string
		List, Map    *string
		Keys         []string
	}
	// Ours says of an object that nobody has looked at that it is not done; the manager sets both.
	if path == ".status" || path == ".status.observedGeneration" {
		ours.Default = theirs.Default
	}
	if slices.Equal(theirs.XListMapKeys, ours.XListMapKeys[:min(len(theirs.XListMapKeys), len(ours.XListMapKeys))]) {
		ours.XListMapKeys = theirs.XListMapKeys // another key more takes more lists: v0.63.0 has name and key of spec.secrets
	}
	of := func(s apiextensionsv1.JSONSchemaProps) same {
		m := same{Type: s.Type, Format: s.Format, List: s.XListType, Map: s.XMapType, Keys: s.XListMapKeys}
		if s.Default != nil {
			m.Default = string(s.Default.Raw)
		}
		return m
	}
	if diff := cmp.Diff(of(theirs), of(ours)); diff != "" {
		c.note(path, "means something else (-theirs +ours):\n%s", diff)
	}
}

// bounds is where ours may take more, and not less.
func (c comparison) bounds(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	for _, b := range []struct {
		name         string
		theirs, ours *int64
		sign         int64
	}{
		{"maximum", whole(theirs.Maximum), whole(ours.Maximum), 1},
		{"maxLength", theirs.MaxLength, ours.MaxLength, 1},
		{"maxItems", theirs.MaxItems, ours.MaxItems, 1},
		{"minimum", whole(theirs.Minimum), whole(ours.Minimum), -1},
		{"minLength", theirs.MinLength, ours.MinLength, -1},
		{"minItems", theirs.MinItems, ours.MinItems, -1},
	} {
		if b.ours != nil && (b.theirs == nil || *b.ours*b.sign < *b.theirs*b.sign) {
			c.note(path, "%s %d", b.name, *b.ours)
		}
	}
	c.values(path, theirs, ours)
}

func whole(f *float64) *int64 {
	if f == nil {
		return nil
	}
	n := int64(*f)
	return &n
}

// values is what a text or an object must look like.
func (c comparison) values(path string, theirs, ours apiextensionsv1.JSONSchemaProps) {
	if ours.Pattern != "" && ours.Pattern != theirs.Pattern {
		c.note(path, "pattern %s", ours.Pattern)
	}
	for _, value := range theirs.Enum {
		if len(ours.Enum) > 0 && !slices.ContainsFunc(ours.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			c.note(path, "%s is refused", value.Raw)
		}
	}
	if len(theirs.Enum) == 0 && len(ours.Enum) > 0 {
		c.note(path, "one of %d values", len(ours.Enum))
	}
	rules := slices.DeleteFunc(slices.Clone(ours.XValidations), func(rule apiextensionsv1.ValidationRule) bool {
		return slices.ContainsFunc(theirs.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule })
	})
	if len(rules) > 0 {
		c.note(path, "%d rules", len(rules))
	}
}
