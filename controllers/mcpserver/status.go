package mcpserver

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/fsm"
)

// roleSuspended is that of a server that is scaled to zero: it is where it should be,
// which the machine calls steady, and yet nobody can use it.
const roleSuspended = "suspended"

var roles = map[string]fsm.Role{
	roleSuspended: {Doc: "The server is scaled to zero, as its spec says: it is where it should be, and not Ready.", Of: fsm.RoleOfPhase, Required: true},
}

// decorate derives the server's own fields and conditions from its spec, its
// annotations and the machine's state. It is a function of the machine and the object, but
// for the moment at which a condition changes.
func (s Settings) decorate(m *fsm.Machine, srv *server) {
	phase := m.PhaseInfo(srv.Status.Machine.Phase)
	srv.Status.URL = urlOf(srv)
	decorateReady(srv, phase.Role == roleSuspended)
	if phase.Deletion {
		srv.Status.ReadyReplicas = 0 // nobody counts them any more, and they are asked to go
	}
	problems := problemsByCondition(s.Proxy, srv)
	setCondition(srv, v1beta1.ConditionPodTemplateValid, podTemplateCondition(srv, problems[v1beta1.ConditionPodTemplateValid]))
	setCondition(srv, v1beta1.ConditionStdioReplicaCapped, stdioCondition(srv))
	setCondition(srv, v1beta1.ConditionSessionStorageWarning, sessionCondition(s.Proxy, srv))
	setCondition(srv, v1beta1.ConditionRateLimitConfigValid, rateLimitCondition(srv))
	setCondition(srv, v1beta1.ConditionPrimaryUpstreamProviderIgnored, upstreamProviderCondition(srv))
	for _, kind := range []string{v1beta1.ConditionRestartRequestValid, v1beta1.ConditionSpecEnforced} {
		setCondition(srv, kind, whileFalse(problems[kind]))
	}
	s.Proxy.forget(srv)
}

// urlOf is where clients in the cluster reach the proxy.
func urlOf(srv *server) string {
	url := fmt.Sprintf("http://%s.%s.svc.cluster.local:%d", v1beta1.ProxyServiceName(srv.Name), srv.Namespace, proxyPort(&srv.Spec))
	if proxyMode(&srv.Spec) == v1beta1.TransportSSE {
		return url + "/sse#" + srv.Name
	}
	return url + "/mcp"
}

// decorateReady gives Ready the two reasons that clients of the peer know; the
// machine's own is in Reconciling, Stalled and the history.
func decorateReady(srv *server, suspended bool) {
	ready := meta.FindStatusCondition(srv.Status.Conditions, fsm.ConditionReady)
	if ready == nil {
		return
	}
	if since := srv.Status.Machine.EnteredAt; suspended && since != nil {
		// A time of its own would make each look write.
		ready.Status, ready.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(since.Time)
	}
	ready.Reason = v1beta1.ReasonNotReady
	if ready.Status == metav1.ConditionTrue {
		ready.Reason = v1beta1.ReasonReady
	}
}

// setCondition removes a condition that does not apply.
func setCondition(srv *server, kind string, c *metav1.Condition) {
	if c == nil {
		meta.RemoveStatusCondition(&srv.Status.Conditions, kind)
		return
	}
	c.Type, c.ObservedGeneration = kind, srv.Generation
	meta.SetStatusCondition(&srv.Status.Conditions, *c)
}

// whileFalse is a condition that is there for a problem only.
func whileFalse(p *problem) *metav1.Condition {
	if p == nil {
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message}
}

func podTemplateCondition(srv *server, p *problem) *metav1.Condition {
	if p == nil {
		p = refused(srv)
	}
	if srv.Spec.PodTemplateSpec == nil || p != nil {
		return whileFalse(p)
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonValidPodTemplateSpec,
		Message: "spec.podTemplateSpec is laid under the pods of the server"}
}

// stdioCondition is on every server, as sessionCondition and rateLimitCondition are:
// clients of the peer wait for them.
func stdioCondition(srv *server) *metav1.Condition {
	capped := func(format string, asked int32) *metav1.Condition {
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonStdioTransportCapAt1, Message: fmt.Sprintf(format, asked)}
	}
	if transport(&srv.Spec) == v1beta1.TransportStdio {
		if asked := ptr.Deref(srv.Spec.Replicas, 1); asked > 1 {
			return capped("spec.replicas is %d, and 1 proxy runs: no more than one can be attached to a stdio server", asked)
		}
		if asked := ptr.Deref(srv.Spec.BackendReplicas, 1); asked > 1 {
			return capped("spec.backendReplicas is %d, and 1 pod is used: a proxy is attached to one stdio server, the others stand by; "+
				"set it to 1, or use a server that speaks HTTP", asked)
		}
	}
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonStdioReplicaCapNotActive,
		Message: "as many pods run as the spec asks for"}
}

func sessionCondition(proxy Flavour, srv *server) *metav1.Condition {
	asked, storage := ptr.Deref(srv.Spec.Replicas, 1), srv.Spec.SessionStorage
	switch {
	case asked <= 1:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonSessionStorageNotApplicable,
			Message: "no more than one proxy is asked for"}
	case storage == nil || storage.Provider != "redis":
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonSessionStorageMissingForReplicas,
			Message: fmt.Sprintf("%d proxies share no sessions: a client keeps its session while it comes to the same one, for which spec.sessionAffinity is ClientIP", asked)}
	}
	told := "spec.sessionStorage names a store, which this proxy does not use"
	if proxy == ToolHive {
		told = "proxies share sessions in the store that spec.sessionStorage names"
	}
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonSessionStorageConfigured, Message: told}
}

// rateLimitCondition is about what the spec says, not about whether anybody heeds it.
func rateLimitCondition(srv *server) *metav1.Condition {
	if srv.Spec.RateLimiting == nil {
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonRateLimitNotApplicable,
			Message: "spec.rateLimiting is not set"}
	}
	if p := rateLimitProblem(srv); p != nil {
		return whileFalse(p)
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonRateLimitConfigValid,
		Message: "spec.rateLimiting is understood"}
}

func rateLimitProblem(srv *server) *problem {
	wrong := toolhive.RateLimitError(&srv.Spec)
	switch {
	case wrong == nil:
		return nil
	case errors.Is(wrong, toolhive.ErrNoUsers):
		return newProblem(v1beta1.ReasonRateLimitPerUserNeedsAuth, "%v", wrong)
	}
	return newProblem(v1beta1.ReasonRateLimitConfigInvalid, "%v", wrong)
}

// upstreamProviderCondition is there while it is True.
func upstreamProviderCondition(srv *server) *metav1.Condition {
	name := toolhive.PrimaryUpstreamProvider(&srv.Spec)
	if name == "" {
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPrimaryUpstreamProviderIgnored,
		Message: fmt.Sprintf("spec.authzConfig.inline.primaryUpstreamProvider is %q, without effect on an MCPServer: remove it", name)}
}
