package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// problem is what stands against a spec or a request, as a condition tells it.
type problem struct{ Reason, Message string }

// newProblem bounds the message, so that a condition, an Event and status.message
// tell the same.
func newProblem(reason, format string, args ...any) *problem {
	return &problem{Reason: reason, Message: v1alpha1.Shorten(fmt.Sprintf(format, args...), v1beta1.MaxMessageLength)}
}

// problemsByCondition are the problems that have a condition of their own, by its
// type; nil for a condition that is not False. It is pure.
func problemsByCondition(proxy Flavour, srv *server) map[string]*problem {
	return map[string]*problem{
		v1beta1.ConditionPodTemplateValid:    podTemplateProblem(srv),
		v1beta1.ConditionRestartRequestValid: restartProblem(srv),
		v1beta1.ConditionSpecEnforced:        notEnforced(proxy, srv, unsentOf(proxy, srv)),
	}
}

// podTemplateProblem is what is wrong with spec.podTemplateSpec, if anything.
func podTemplateProblem(srv *server) *problem {
	if _, err := podTemplate(srv.Spec.PodTemplateSpec); err != nil {
		return newProblem(v1beta1.ReasonInvalidPodTemplateSpec, "%v", err)
	}
	return nil
}

// restartProblem is why the annotations' request for a restart cannot be
// understood, if there is one.
func restartProblem(srv *server) *problem {
	at := srv.Annotations[v1beta1.AnnotationRestartedAt]
	if at == "" || at == srv.Annotations[v1beta1.AnnotationLastProcessedRestart] {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		return newProblem(v1beta1.ReasonInvalidRestartTimestamp,
			"annotation %s is %q, which is not a time such as 2006-01-02T15:04:05Z: nothing is restarted", v1beta1.AnnotationRestartedAt, at)
	}
	strategy := srv.Annotations[v1beta1.AnnotationRestartStrategy]
	if !slices.Contains([]string{"", v1beta1.StrategyRolling, v1beta1.StrategyImmediate}, strategy) {
		return newProblem(v1beta1.ReasonInvalidRestartStrategy,
			"annotation %s is %q, neither %s nor %s: nothing is restarted",
			v1beta1.AnnotationRestartStrategy, strategy, v1beta1.StrategyRolling, v1beta1.StrategyImmediate)
	}
	return nil
}

// enforcementProblem names what the spec asks for and the proxy does not do.
func enforcementProblem(proxy Flavour, srv *server) *problem {
	if refused := unprotected(proxy, srv); len(refused) > 0 {
		return newProblem(v1beta1.ReasonNotEnforced,
			"this proxy does not enforce %s, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation %s: %q",
			list(paths(srv, refused)), v1beta1.AnnotationAcceptNotEnforced, strings.Join(append(accepted(proxy, srv), refused...), ","))
	}
	if without := slices.Concat(protection(proxy, srv), extras(proxy, srv)); len(without) > 0 {
		return newProblem(v1beta1.ReasonNotEnforced, "kept for other controllers, but without effect on this proxy: %s", list(paths(srv, without)))
	}
	return nil
}

// unsentOf is that a credential is not sent, as the last look at its configuration has found.
func unsentOf(proxy Flavour, srv *server) *problem {
	c := meta.FindStatusCondition(srv.Status.Conditions, v1beta1.ConditionSpecEnforced)
	if proxy != ToolHive || c == nil || c.Reason != v1beta1.ReasonNotSent || c.ObservedGeneration != srv.Generation || srv.Spec.ExternalAuthConfigRef == nil {
		return nil
	}
	return &problem{c.Reason, c.Message}
}

// notEnforced is what the spec asks for and the proxy does not do, or else the credential that it does not send.
func notEnforced(proxy Flavour, srv *server, unsent *problem) *problem {
	return cmp.Or(enforcementProblem(proxy, srv), unsent)
}

// unprotected are the fields that ask for protection which nobody would give, and of
// which nobody has said that this is known. A server that has one of them is not run.
func unprotected(proxy Flavour, srv *server) []string {
	known := accepted(proxy, srv)
	return slices.DeleteFunc(protection(proxy, srv), func(field string) bool { return slices.Contains(known, field) })
}

// accepted are the fields that ask for protection and that the annotation names. It
// names each: one that is added later, by another controller for instance, is not
// accepted by what was written before.
func accepted(proxy Flavour, srv *server) (fields []string) {
	asked := protection(proxy, srv)
	for text := range strings.SplitSeq(srv.Annotations[v1beta1.AnnotationAcceptNotEnforced], ",") {
		field := strings.TrimPrefix(strings.TrimSpace(text), "spec.")
		if slices.Contains(asked, field) && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// protection are the fields that ask for protection which the proxy does not give, and those that this version does not
// know and whose name sounds like it.
func protection(proxy Flavour, srv *server) []string {
	s := &srv.Spec
	var audit struct{ Enabled bool }
	if s.Audit != nil && json.Unmarshal(s.Audit.Raw, &audit) != nil {
		audit.Enabled = true // it asks for something that is not understood
	}
	return append(proxy.without(
		field{"oidcConfigRef", s.OIDCConfigRef != nil},
		field{"oidcConfig", s.OIDCConfig != nil},
		field{"authServerRef", s.AuthServerRef != nil},
		field{"authzConfigRef", s.AuthzConfigRef != nil},
		field{"authzConfig", s.AuthzConfig != nil},
		field{"externalAuthConfigRef", s.ExternalAuthConfigRef != nil},
		field{"webhookConfigRef", s.WebhookConfigRef != nil},
		field{"rateLimiting", s.RateLimiting != nil},
		field{"toolConfigRef", s.ToolConfigRef != nil},
		field{"tools", s.ToolsFilter != nil},
		field{"audit", audit.Enabled},
	), unread(s, true)...)
}

// unread are the fields that this version does not know, and that a CRD other than ours has kept: those that may ask for
// protection, or the others.
func unread(s *v1beta1.MCPServerSpec, protecting bool) (fields []string) {
	for _, name := range s.Unread {
		if v1beta1.MayProtect(name) == protecting {
			fields = append(fields, name)
		}
	}
	return fields
}

// extras are the fields without which nobody is less protected.
func extras(proxy Flavour, srv *server) []string {
	s := &srv.Spec
	return append(proxy.without(
		field{"telemetryConfigRef", s.TelemetryConfigRef != nil},
		field{"sessionStorage", s.SessionStorage != nil && s.SessionStorage.Provider == "redis"},
	), unread(s, false)...)
}

type field struct {
	name string
	set  bool
}

// without are the names of the fields that are set and of which the proxy does nothing.
func (f Flavour) without(fields ...field) (names []string) {
	for _, field := range fields {
		if field.set && (f != ToolHive || !toolhive.Enforces(field.name)) {
			names = append(names, field.name)
		}
	}
	return names
}

func paths(srv *server, fields []string) []string {
	all := make([]string, len(fields))
	for i, name := range fields {
		all[i] = "spec." + name
		if slices.Contains(srv.Spec.Unread, name) {
			all[i] += " (an unknown field: mistyped, or of a newer ToolHive)"
		}
	}
	return all
}

func list(items []string) string { return strings.Join(items, ", ") }
