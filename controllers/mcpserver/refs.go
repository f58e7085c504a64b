package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// ref is a configuration that a server may name, and where the status tells of it.
type ref struct {
	kind, condition, valid, absent string
	// of is the reference in the spec; nil if there is none.
	of func(*server) *v1beta1.LocalRef
	// hash points into the status; nil where the status tells no hash.
	hash func(*server) *string

	// version is that of the kind; empty: v1beta1.GroupVersion.
	version string
	// field is that of the spec, invalid the reason for which no proxy can be made of
	// the configuration, and into where it is handed over: for ToolHive alone.
	field, invalid string
	into           func(*toolhive.Objects) **unstructured.Unstructured
}

// refs are looked at whichever program the proxies run.
var refs = []ref{
	{
		kind: "MCPToolConfig", condition: v1beta1.ConditionToolConfigRefValidated,
		valid: v1beta1.ReasonToolConfigRefValid, absent: v1beta1.ReasonToolConfigRefNotFound,
		of:    func(s *server) *v1beta1.LocalRef { return s.Spec.ToolConfigRef },
		hash:  func(s *server) *string { return &s.Status.ToolConfigHash },
		field: "toolConfigRef", invalid: "ToolConfigRefNotValid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Tool },
	},
	{
		kind: "MCPExternalAuthConfig", condition: v1beta1.ConditionExternalAuthConfigValidated,
		valid: v1beta1.ReasonExternalAuthConfigValid, absent: v1beta1.ReasonExternalAuthConfigAbsent,
		of:    func(s *server) *v1beta1.LocalRef { return s.Spec.ExternalAuthConfigRef },
		hash:  func(s *server) *string { return &s.Status.ExternalAuthConfigHash },
		field: "externalAuthConfigRef", invalid: "InvalidConfig",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.ExternalAuth },
	},
}

// toolHiveRefs are looked at for ToolHive's proxyrunner alone.
var toolHiveRefs = []ref{
	{
		kind: "MCPOIDCConfig", condition: "OIDCConfigRefValidated", valid: "OIDCConfigRefValid", absent: "OIDCConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.OIDCConfigRef) },
		field: "oidcConfigRef", invalid: "OIDCConfigRefNotValid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.OIDC },
	},
	{
		kind: "MCPAuthzConfig", condition: "AuthzConfigRefValidated", valid: "AuthzConfigRefValid", absent: "AuthzConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.AuthzConfigRef) },
		field: "authzConfigRef", invalid: "AuthzConfigRefNotValid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Authz },
	},
	{
		kind: "MCPTelemetryConfig", condition: "TelemetryConfigRefValidated", valid: "TelemetryConfigRefValid", absent: "TelemetryConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.TelemetryConfigRef) },
		field: "telemetryConfigRef", invalid: "TelemetryConfigRefInvalid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Telemetry },
	},
	{
		kind: webhookKind, version: webhookVersion, condition: "WebhookConfigValidated", valid: "WebhookConfigValid", absent: "WebhookConfigInvalid",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.WebhookConfigRef) },
		field: "webhookConfigRef", invalid: "WebhookConfigInvalid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Webhook },
	},
}

// Conditions of ToolHive that are about no reference, or about several.
const (
	conditionRateLimit = "RateLimitConfigValid"
	conditionCABundle  = "CABundleRefValidated"
)

// refs are those that this flavour looks at.
func (f Flavour) refs() []ref {
	if f == ToolHive {
		return append(refs[:len(refs):len(refs)], toolHiveRefs...)
	}
	return refs
}

// localRef is the name in a reference of which this package knows no more. One that
// cannot be read has no name: it is refused where it is read.
func localRef(value *apiextensionsv1.JSON) *v1beta1.LocalRef {
	if value == nil {
		return nil
	}
	named := &v1beta1.LocalRef{}
	_ = json.Unmarshal(value.Raw, named)
	return named
}

// apiVersion is that of the kind.
func (r ref) apiVersion() string { return cmp.Or(r.version, v1beta1.GroupVersion.String()) }

// tell records what a look at the configuration has found; an empty hash is nothing.
func (r ref) tell(srv *server, name, hash string) {
	if r.hash != nil {
		*r.hash(srv) = hash
	}
	c := &metav1.Condition{Status: metav1.ConditionTrue, Reason: r.valid, Message: fmt.Sprintf("%s %s has hash %s", r.kind, name, hash)}
	if hash == "" {
		c = whileFalse(r.absence(srv, name))
	}
	setCondition(srv, r.condition, c)
}

// absence is what is told of a configuration that is not there.
func (r ref) absence(srv *server, name string) *problem {
	return newProblem(r.absent, "%s %s is not in namespace %s: create it, or remove the reference", r.kind, name, srv.Namespace)
}

// forget is for a reference that the spec does not have any more.
func (r ref) forget(srv *server) {
	if r.hash != nil {
		*r.hash(srv) = ""
	}
	setCondition(srv, r.condition, nil)
}

// forget takes away what is told of what the spec does not have, and what nobody tells
// of any more with this flavour.
func (f Flavour) forget(srv *server) {
	told := map[string]bool{}
	for _, r := range f.refs() {
		if r.of(srv) == nil {
			r.forget(srv)
		}
		told[r.condition] = true
	}
	if f == ToolHive {
		told[conditionRateLimit] = srv.Spec.RateLimiting != nil
		told[conditionCABundle] = srv.Spec.OIDCConfigRef != nil || srv.Spec.TelemetryConfigRef != nil
	}
	for _, kind := range peersConditions {
		if !told[kind] {
			setCondition(srv, kind, nil)
		}
	}
}
