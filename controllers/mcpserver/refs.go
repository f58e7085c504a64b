package mcpserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/controllers/runner"
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
	// wrong is why a configuration that is there is not to be used; nil for nothing. The
	// function is nil where none of that can be seen.
	wrong func(srv *server, config *unstructured.Unstructured) *problem
	// unfit is why the reference leads nowhere, whatever is there; as wrong.
	unfit func(*server) *problem
	// field is that of the spec, invalid the reason for which no proxy can be made of
	// the configuration, and into where it is handed over: for ToolHive alone.
	field, invalid string
	into           func(*toolhive.Objects) **unstructured.Unstructured
	// unread is the reason while the configuration cannot be read; empty where the status does not tell.
	unread string
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
		field: "externalAuthConfigRef", invalid: "InvalidConfig", wrong: mirrored,
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.ExternalAuth },
	},
	{
		kind: "MCPExternalAuthConfig", condition: v1beta1.ConditionAuthServerRefValidated,
		valid: v1beta1.ReasonAuthServerRefValid, absent: v1beta1.ReasonAuthServerRefNotFound,
		of:   func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.AuthServerRef) },
		hash: func(s *server) *string { return &s.Status.AuthServerConfigHash }, unfit: authServerKind, wrong: noAuthServer,
		field: "authServerRef", invalid: v1beta1.ReasonAuthServerRefInvalidConfig,
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.AuthServer },
	},
	{
		kind: "MCPGroup", condition: v1beta1.ConditionGroupRefValidated,
		valid: v1beta1.ReasonGroupRefValid, absent: v1beta1.ReasonGroupRefNotFound,
		of: func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.GroupRef) }, wrong: groupNotReady,
	},
}

// toolHiveRefs are looked at for ToolHive's proxyrunner alone.
var toolHiveRefs = []ref{
	{
		kind: "MCPOIDCConfig", condition: "OIDCConfigRefValidated", valid: "OIDCConfigRefValid", absent: "OIDCConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.OIDCConfigRef) },
		hash:  func(s *server) *string { return &s.Status.OIDCConfigHash },
		field: "oidcConfigRef", invalid: "OIDCConfigRefNotValid", wrong: notValid("OIDCConfigRefNotValid"),
		into:   func(o *toolhive.Objects) **unstructured.Unstructured { return &o.OIDC },
		unread: "OIDCConfigRefError",
	},
	{
		kind: "MCPAuthzConfig", condition: "AuthzConfigRefValidated", valid: "AuthzConfigRefValid", absent: "AuthzConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.AuthzConfigRef) },
		hash:  func(s *server) *string { return &s.Status.AuthzConfigHash },
		field: "authzConfigRef", invalid: "AuthzConfigRefNotValid", wrong: notValid("AuthzConfigRefNotValid"),
		into:   func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Authz },
		unread: "AuthzConfigRefError",
	},
	{
		kind: "MCPTelemetryConfig", condition: "TelemetryConfigRefValidated", valid: "TelemetryConfigRefValid", absent: "TelemetryConfigRefNotFound",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.TelemetryConfigRef) },
		hash:  func(s *server) *string { return &s.Status.TelemetryConfigHash },
		field: "telemetryConfigRef", invalid: "TelemetryConfigRefInvalid",
		into:   func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Telemetry },
		unread: "TelemetryConfigRefError",
	},
	{
		kind: webhookKind, version: webhookVersion, condition: "WebhookConfigValidated", valid: "WebhookConfigValid", absent: "WebhookConfigInvalid",
		of:    func(s *server) *v1beta1.LocalRef { return localRef(s.Spec.WebhookConfigRef) },
		hash:  func(s *server) *string { return &s.Status.WebhookConfigHash },
		field: "webhookConfigRef", invalid: "WebhookConfigInvalid",
		into: func(o *toolhive.Objects) **unstructured.Unstructured { return &o.Webhook },
	},
}

// conditionCABundle is about certificates that several references may lead to.
const conditionCABundle = "CABundleRefValidated"

// refs are those that this flavour looks at.
func (f Flavour) refs() []ref {
	if f == ToolHive {
		return append(refs[:len(refs):len(refs)], toolHiveRefs...)
	}
	return refs
}

// references are the same for the runner, each kind once.
func (f Flavour) references() (kinds []runner.Reference[*server]) {
	for _, r := range f.refs() {
		if slices.ContainsFunc(kinds, func(k runner.Reference[*server]) bool { return k.Kind == r.kind }) {
			continue
		}
		kinds = append(kinds, runner.Reference[*server]{APIVersion: r.apiVersion(), Kind: r.kind, Read: readOf, Names: func(srv *server) (names []string) {
			for _, other := range f.refs() {
				if named := other.of(srv); other.kind == r.kind && named != nil {
					names = append(names, named.Name)
				}
			}
			return names
		}})
	}
	return kinds
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
func (f finding) tell(srv *server) {
	if !f.named {
		f.forget(srv)
		return
	}
	if f.hash != nil {
		*f.hash(srv) = f.sum
	}
	c := &metav1.Condition{Status: metav1.ConditionTrue, Reason: f.valid, Message: fmt.Sprintf("%s %s has hash %s", f.kind, f.name, f.sum)}
	if f.hash == nil {
		c.Message = fmt.Sprintf("%s %s is there and ready", f.kind, f.name)
	}
	if p := f.problem(srv); p != nil {
		c = whileFalse(p)
	}
	setCondition(srv, f.condition, c)
}

// problem is why the configuration that the spec names cannot be used; nil if it can, or
// if the spec names none.
func (f finding) problem(srv *server) *problem {
	if !f.named {
		return nil
	}
	if f.unfit != nil {
		if p := f.unfit(srv); p != nil {
			return p
		}
	}
	switch {
	case f.config == nil:
		return f.absence(srv, f.name)
	case f.wrong == nil:
		return nil
	}
	return f.wrong(srv, f.config)
}

// unreadError says that a configuration could not be read. It is tried again.
type unreadError struct {
	ref
	error
}

func (e *unreadError) Unwrap() error { return e.error }

// tellUnread tells of a configuration that could not be read. A condition that says more, as that it was read before, goes:
// it may have changed since.
func tellUnread(srv *server, err error) {
	var unread *unreadError
	if errors.As(err, &unread) && unread.unread != "" {
		setCondition(srv, unread.condition, whileFalse(newProblem(unread.unread, "%v", unread.error)))
	}
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
		told[conditionCABundle] = srv.Spec.OIDCConfigRef != nil || srv.Spec.TelemetryConfigRef != nil
	}
	for _, kind := range peersConditions {
		if !told[kind] {
			setCondition(srv, kind, nil)
		}
	}
}
