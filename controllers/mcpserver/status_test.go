package mcpserver

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// described is a server of streamable-http as the API server defaults it, in a
// phase, with the Ready that the runner gives it there.
func described(phase string, ready metav1.ConditionStatus, change ...func(*server)) *server {
	srv := &server{
		ObjectMeta: metav1.ObjectMeta{Name: "fetch", Namespace: "tools", Generation: 4},
		Spec: v1beta1.MCPServerSpec{Image: "fetch:1", Transport: v1beta1.TransportStreamableHTTP, ProxyMode: v1beta1.TransportStreamableHTTP,
			ProxyPort: 8080, SessionAffinity: "ClientIP"},
	}
	srv.Status.Machine.Phase = phase
	srv.Status.Machine.EnteredAt = &metav1.MicroTime{Time: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	srv.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: "WhateverLedHere", Message: "the cause", ObservedGeneration: 4,
		LastTransitionTime: metav1.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)}}
	for _, c := range change {
		c(srv)
	}
	return srv
}

// seen is a condition without its times.
type seen struct{ Type, Status, Reason, Message string }

func seenOf(srv *server) []seen {
	var all []seen
	for _, c := range srv.Status.Conditions {
		all = append(all, seen{c.Type, string(c.Status), c.Reason, c.Message})
	}
	return all
}

// usual are the conditions that every server has, as they are where nothing is asked for
// that they tell of.
var usual = []seen{
	{"StdioReplicaCapped", "False", "StdioReplicaCapNotActive", "as many pods run as the spec asks for"},
	{"SessionStorageWarning", "False", "SessionStorageWarningNotApplicable", "no more than one proxy is asked for"},
	{"RateLimitConfigValid", "True", "RateLimitNotApplicable", "spec.rateLimiting is not set"},
}

// notable are the others, and those that are not as usual.
func notable(srv *server) []seen {
	return slices.DeleteFunc(seenOf(srv), func(s seen) bool { return slices.Contains(usual, s) })
}

// Whoever waits for a condition of the peer waits for ever where it is absent: these three
// are on every server, of whichever flavour, and say what the spec says.
func TestConditionsOfEveryServer(t *testing.T) {
	stdio := func(s *v1beta1.MCPServerSpec) { s.Transport = v1beta1.TransportStdio }
	replicas := func(n int32) func(*v1beta1.MCPServerSpec) {
		return func(s *v1beta1.MCPServerSpec) { s.Replicas = &n }
	}
	redis := func(s *v1beta1.MCPServerSpec) {
		s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:1"}
	}
	limits := func(value string) func(*v1beta1.MCPServerSpec) {
		return func(s *v1beta1.MCPServerSpec) { s.RateLimiting = text(value) }
	}
	oidc := func(s *v1beta1.MCPServerSpec) { s.OIDCConfigRef = text(`{"name":"idp","audience":"a"}`) }
	auth := func(s *v1beta1.MCPServerSpec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} }
	const perUser, shared = `{"perUser":{"maxTokens":1,"refillPeriod":"1s"}}`, `{"shared":{"maxTokens":1,"refillPeriod":"1s"}}`
	type specs = []func(*v1beta1.MCPServerSpec)
	inactive, none, absent := "False StdioReplicaCapNotActive", "False SessionStorageWarningNotApplicable", "True RateLimitNotApplicable"
	for name, c := range map[string]struct {
		why  string
		spec specs
		want []string
	}{
		"least":              {"nothing is asked for that they tell of", nil, []string{inactive, none, absent}},
		"stdio":              {"one proxy is no more than one", specs{stdio}, []string{inactive, none, absent}},
		"stopped":            {"the same", specs{stdio, replicas(0)}, []string{inactive, none, absent}},
		"stdio, three":       {"one of them runs; the warning is about what is asked for", specs{stdio, replicas(3)}, []string{"True StdioTransportCapAt1", "True SessionStorageMissingForReplicas", absent}},
		"three":              {"sessions are not shared", specs{replicas(3)}, []string{inactive, "True SessionStorageMissingForReplicas", absent}},
		"three in memory":    {"memory is not shared", specs{replicas(3), func(s *v1beta1.MCPServerSpec) { s.SessionStorage = &v1beta1.SessionStorage{Provider: "memory"} }}, []string{inactive, "True SessionStorageMissingForReplicas", absent}},
		"three and a store":  {"it is named", specs{replicas(3), redis}, []string{inactive, "False SessionStorageConfigured", absent}},
		"one and a store":    {"one proxy shares with nobody", specs{redis}, []string{inactive, none, absent}},
		"limits":             {"they can be followed", specs{redis, limits(shared)}, []string{inactive, none, "True RateLimitConfigValid"}},
		"limits, no store":   {"nothing would be counted", specs{limits(shared)}, []string{inactive, none, "False RateLimitConfigInvalid"}},
		"limits of tomorrow": {"the field that is not known may be the limit", specs{redis, limits(`{"burst":1}`)}, []string{inactive, none, "False RateLimitConfigInvalid"}},
		"users":              {"they are known by their tokens", specs{redis, limits(perUser), oidc}, []string{inactive, none, "True RateLimitConfigValid"}},
		"unknown users":      {"nobody knows who calls", specs{redis, limits(perUser)}, []string{inactive, none, "False PerUserRequiresAuth"}},
		"exchanged tokens":   {"they say who calls only where tokens are asked for", specs{redis, limits(perUser), auth}, []string{inactive, none, "False PerUserRequiresAuth"}},
		"users of a tool": {"as of all", specs{redis, limits(`{"tools":[{"name":"a","perUser":{"maxTokens":1,"refillPeriod":"1s"}}]}`)},
			[]string{inactive, none, "False PerUserRequiresAuth"}},
	} {
		for _, flavour := range Flavours {
			srv := described("Ready", metav1.ConditionTrue, func(s *server) {
				for _, change := range c.spec {
					change(&s.Spec)
				}
			})
			Settings{Proxy: flavour}.decorate(shippedMachine(t), srv)
			var got []string
			for _, u := range usual {
				if now := meta.FindStatusCondition(srv.Status.Conditions, u.Type); now != nil {
					got = append(got, string(now.Status)+" "+now.Reason)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s: %s (-want +got):\n%s", name, flavour, c.why, diff)
			}
		}
	}
}

func TestDecorateURL(t *testing.T) {
	cases := map[string]struct {
		why    string
		change func(*v1beta1.MCPServerSpec)
		want   string
	}{
		"streamable-http": {"the least", func(*v1beta1.MCPServerSpec) {}, "http://mcp-fetch-proxy.tools.svc.cluster.local:8080/mcp"},
		"sse":             {"the proxy speaks what the server does", func(s *v1beta1.MCPServerSpec) { s.Transport = v1beta1.TransportSSE }, "http://mcp-fetch-proxy.tools.svc.cluster.local:8080/sse#fetch"},
		"stdio":           {"proxyMode decides", func(s *v1beta1.MCPServerSpec) { s.Transport = v1beta1.TransportStdio }, "http://mcp-fetch-proxy.tools.svc.cluster.local:8080/mcp"},
		"stdio, no proxyMode": {"an object from before the default", func(s *v1beta1.MCPServerSpec) { s.Transport, s.ProxyMode = v1beta1.TransportStdio, "" },
			"http://mcp-fetch-proxy.tools.svc.cluster.local:8080/mcp"},
		"stdio by sse": {"proxyMode decides", func(s *v1beta1.MCPServerSpec) {
			s.Transport, s.ProxyMode = v1beta1.TransportStdio, v1beta1.TransportSSE
		},
			"http://mcp-fetch-proxy.tools.svc.cluster.local:8080/sse#fetch"},
		"sse server, another proxyMode": {"proxyMode is for stdio only", func(s *v1beta1.MCPServerSpec) {
			s.Transport, s.ProxyMode = v1beta1.TransportSSE, v1beta1.TransportStreamableHTTP
		},
			"http://mcp-fetch-proxy.tools.svc.cluster.local:8080/sse#fetch"},
		"another port": {"an edit is followed: it is not what was first", func(s *v1beta1.MCPServerSpec) { s.ProxyPort = 9090 }, "http://mcp-fetch-proxy.tools.svc.cluster.local:9090/mcp"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			srv := described("Ready", metav1.ConditionTrue, func(s *server) { s.Status.URL = "http://what.it.was:1/mcp"; c.change(&s.Spec) })
			Settings{}.decorate(shippedMachine(t), srv)
			if srv.Status.URL != c.want {
				t.Errorf("%s: url is %q, want %q", c.why, srv.Status.URL, c.want)
			}
		})
	}
}

func TestDecorateConditions(t *testing.T) {
	ready := seen{"Ready", "True", "Ready", "the cause"}
	notReady := seen{"Ready", "False", "NotReady", "the cause"}
	alone := seen{"SessionStorageWarning", "True", "SessionStorageMissingForReplicas",
		"3 proxies share no sessions: a client keeps its session while it comes to the same one, for which spec.sessionAffinity is ClientIP"}
	stdio := func(s *server) { s.Spec.Transport = v1beta1.TransportStdio }
	three := func(s *server) { s.Spec.Replicas = new(int32(3)) }
	redis := func(s *server) { s.Spec.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:6379"} }
	annotated := func(name, value string) func(*server) {
		return func(s *server) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
	}
	left := func(kinds ...string) func(*server) {
		return func(s *server) {
			for _, kind := range kinds {
				s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Old"})
			}
		}
	}
	cases := map[string]struct {
		why  string
		srv  *server
		want []seen
	}{
		"Ready":       {"clients know two reasons", described("Ready", metav1.ConditionTrue), []seen{ready}},
		"Pending":     {"whatever phase, the message keeps the cause", described("Pending", metav1.ConditionFalse), []seen{notReady}},
		"Failed":      {"no reason of a failure in Ready", described("Failed", metav1.ConditionFalse), []seen{notReady}},
		"Stopped":     {"steady for the machine, and of no use to clients", described("Stopped", metav1.ConditionTrue), []seen{notReady}},
		"Terminating": {"as any other", described("Terminating", metav1.ConditionFalse), []seen{notReady}},

		"template": {"it was understood", described("Ready", metav1.ConditionTrue, func(s *server) { template(`{"spec":{"nodeSelector":{"a":"b"}}}`)(&s.Spec) }),
			[]seen{ready, {"PodTemplateValid", "True", "ValidPodTemplateSpec", "spec.podTemplateSpec is laid under the pods of the server"}}},
		"template refused": {"what the API server said stays until it is asked again", described("Ready", metav1.ConditionTrue, left("PodTemplateValid"), refusedAt(4)),
			[]seen{ready, {"PodTemplateValid", "False", "InvalidPodTemplateSpec", "the API server refuses the pods of the server: no"}}},
		"template refused before": {"it was another spec", described("Ready", metav1.ConditionTrue, left("PodTemplateValid"), refusedAt(3)), []seen{ready}},

		"stdio": {"no more is asked for than there can be", described("Ready", metav1.ConditionTrue, stdio), []seen{ready}},
		"stdio, three": {"both are about what the spec asks for", described("Ready", metav1.ConditionTrue, stdio, three),
			[]seen{ready, {"StdioReplicaCapped", "True", "StdioTransportCapAt1", "spec.replicas is 3, and 1 proxy runs: no more than one can be attached to a stdio server"}, alone}},
		"stdio, three backends": {"nobody is to believe that they share the load", described("Ready", metav1.ConditionTrue, stdio, func(s *server) { s.Spec.BackendReplicas = new(int32(3)) }),
			[]seen{ready, {"StdioReplicaCapped", "True", "StdioTransportCapAt1", "spec.backendReplicas is 3, and 1 pod is used: a proxy is attached to one stdio server, the others stand by; set it to 1, or use a server that speaks HTTP"}}},

		"three": {"a warning: nothing fails", described("Ready", metav1.ConditionTrue, three), []seen{ready, alone}},
		"three, redis": {"what the spec has is told, and that the proxy does not use it", described("Ready", metav1.ConditionTrue, three, redis),
			[]seen{ready, {"SessionStorageWarning", "False", "SessionStorageConfigured", "spec.sessionStorage names a store, which this proxy does not use"},
				{"SpecEnforced", "False", "NotEnforced", "kept for other controllers, but without effect on this proxy: spec.sessionStorage"}}},

		"an upstream provider": {"it is on the field of another kind", described("Ready", metav1.ConditionTrue, annotated(v1beta1.AnnotationAcceptNotEnforced, "authzConfig"),
			func(s *server) {
				s.Spec.AuthzConfig = text(`{"type":"inline","inline":{"policies":["x"],"primaryUpstreamProvider":"okta"}}`)
			}), []seen{ready, {"AuthzPrimaryUpstreamProviderIgnored", "True", "PrimaryUpstreamProviderIgnored",
			`spec.authzConfig.inline.primaryUpstreamProvider is "okta", without effect on an MCPServer: remove it`},
			{"SpecEnforced", "False", "NotEnforced", "kept for other controllers, but without effect on this proxy: spec.authzConfig"}}},

		"restart understood": {"no problem, no condition", described("Ready", metav1.ConditionTrue,
			annotated(v1beta1.AnnotationRestartedAt, "2026-03-04T12:00:00Z"), left("RestartRequestValid")), []seen{ready}},
		"of the peer's operator": {"this proxy does not do what it tells of; what somebody else tells stays", described("Ready", metav1.ConditionTrue, left("OIDCConfigRefValidated"), func(s *server) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: "SomebodyElses", Status: metav1.ConditionTrue, Reason: "Theirs", ObservedGeneration: 4})
		}), []seen{ready, {"SomebodyElses", "True", "Theirs", ""}}},

		"nothing of before": {"what does not apply any more goes, and a hash with its reference", described("Ready", metav1.ConditionTrue,
			left("PodTemplateValid", "StdioReplicaCapped", "SessionStorageWarning", "AuthzPrimaryUpstreamProviderIgnored", "SpecEnforced", "ToolConfigRefValidated"),
			func(s *server) { s.Status.ToolConfigHash = "abc" }), []seen{ready}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			Settings{}.decorate(shippedMachine(t), c.srv)
			if diff := cmp.Diff(c.want, notable(c.srv)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			for _, condition := range c.srv.Status.Conditions {
				if condition.ObservedGeneration != 4 {
					t.Errorf("%s is of generation %d, want 4", condition.Type, condition.ObservedGeneration)
				}
			}
			if c.srv.Status.ToolConfigHash != "" {
				t.Errorf("toolConfigHash is %q without a reference", c.srv.Status.ToolConfigHash)
			}
		})
	}
}

// refusedAt is what the API server said of the spec of a generation.
func refusedAt(generation int64) func(*server) {
	return func(s *server) {
		c := meta.FindStatusCondition(s.Status.Conditions, "PodTemplateValid")
		c.Status, c.Reason, c.Message, c.ObservedGeneration = metav1.ConditionFalse, "InvalidPodTemplateSpec", refusedPrefix+"no", generation
	}
}

// The Deployment is deleted, and nobody counts its pods any more.
func TestNoProxyIsReadyOfAServerThatGoes(t *testing.T) {
	srv := described("Terminating", metav1.ConditionFalse, func(s *server) { s.Status.ReadyReplicas = 2 })
	Settings{}.decorate(shippedMachine(t), srv)
	if srv.Status.ReadyReplicas != 0 {
		t.Errorf("readyReplicas is %d", srv.Status.ReadyReplicas)
	}
}

// A pass that changes nothing must write nothing, so a second look tells the same,
// also after the runner has called a stopped server Ready once more.
func TestDecorateTwiceChangesNothing(t *testing.T) {
	for _, phase := range []string{"Ready", "Stopped", "Failed"} {
		status := metav1.ConditionTrue
		if phase == "Failed" {
			status = metav1.ConditionFalse
		}
		srv := described(phase, status, func(s *server) {
			s.Spec.Transport, s.Spec.Replicas = v1beta1.TransportStdio, new(int32(3))
			s.Spec.AuthzConfig = text(`{}`)
		})
		Settings{}.decorate(shippedMachine(t), srv)
		before := srv.DeepCopy()
		now := metav1.Date(2026, 3, 4, 14, 0, 0, 0, time.UTC)
		meta.SetStatusCondition(&srv.Status.Conditions, metav1.Condition{Type: "Ready", Status: status, Reason: "WhateverLedHere", Message: "the cause",
			ObservedGeneration: 4, LastTransitionTime: now})
		Settings{}.decorate(shippedMachine(t), srv)
		if diff := cmp.Diff(before.Status, srv.Status, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: a second look writes (-first +second):\n%s", phase, diff)
		}
	}
}
