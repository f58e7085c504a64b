package mcpserver

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Whom a configuration wakes: the servers that name it.
func TestReferences(t *testing.T) {
	srv := refServer(func(s *server) {
		s.Spec.GroupRef = &apiextensionsv1.JSON{Raw: []byte(`{"name":"team"}`)}
		s.Spec.AuthServerRef = &apiextensionsv1.JSON{Raw: []byte(`{"name":"issuer"}`)}
		s.Spec.OIDCConfigRef = &apiextensionsv1.JSON{Raw: []byte(`{"name":"oidc"}`)}
	})
	both := map[string][]string{"MCPToolConfig": {"tools"}, "MCPExternalAuthConfig": {"auth", "issuer"}, "MCPGroup": {"team"}}
	theirs := map[string][]string{"MCPOIDCConfig": {"oidc"}, "MCPAuthzConfig": nil, "MCPTelemetryConfig": nil, webhookKind: nil}
	maps.Copy(theirs, both)
	for flavour, want := range map[Flavour]map[string][]string{Phasegate: both, ToolHive: theirs} {
		got := map[string][]string{}
		for _, k := range flavour.references() {
			got[k.Kind] = k.Names(srv)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flavour, diff)
		}
	}
}

// What of a configuration a step does not read wakes nobody: the status of a group follows its servers.
func TestWhatOfAConfigurationIsRead(t *testing.T) {
	group := config("MCPGroup", "team", map[string]any{"description": "x"})
	invalid := map[string]any{"conditions": []any{map[string]any{"type": "Valid", "status": "False", "reason": "Bad", "message": "m"}}}
	for name, c := range map[string]struct {
		why    string
		status map[string]any
		want   bool
	}{
		"its members":         {why: "it follows its servers: each would wake all", status: map[string]any{"phase": "Pending", "servers": []any{"a"}, "serverCount": int64(1)}},
		"its phase":           {why: "GroupRefNotReady", status: map[string]any{"phase": "Ready"}, want: true},
		"a hash":              {why: "the servers repeat it", status: map[string]any{"phase": "Pending", "configHash": "5d41402a"}, want: true},
		"not valid":           {why: "the servers do not run", status: invalid, want: true},
		"valid":               {why: "only that it is not is read", status: map[string]any{"phase": "Pending", "conditions": []any{map[string]any{"type": "Valid", "status": "True"}}}},
		"referencing servers": {why: "nobody reads them", status: map[string]any{"phase": "Pending", "referencingWorkloads": []any{"a"}}},
	} {
		before := readOf(withStatus(group, 3, 3, map[string]any{"phase": "Pending"}))
		if got := readOf(withStatus(group, 3, 3, c.status)) != before; got != c.want {
			t.Errorf("%s: wakes %t: %s", name, got, c.why)
		}
	}
}

// A label selects what is cached of the kinds that the controller watches, whatever labels the spec asks for.
func TestWhatIsWatchedBearsTheLabel(t *testing.T) {
	srv := refServer(func(s *server) {
		s.Name = "weather"
		labels := map[string]string{v1beta1.LabelName: "other"}
		s.Spec.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyService: &v1beta1.MetadataOverrides{Labels: labels}}
	})
	for kind, labels := range map[string]map[string]string{"Service": service(srv).Labels, "Deployment": objectMeta(srv, srv.Name).Labels} {
		if labels[Program(nil, Settings{}).Made] != srv.Name {
			t.Errorf("%s has labels %v", kind, labels)
		}
	}
}
