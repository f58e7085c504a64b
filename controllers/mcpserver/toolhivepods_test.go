package mcpserver

import (
	"testing"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// TestTheirTimes: the proxies of ToolHive's operator have the same, and ours keep their own.
func TestTheirTimes(t *testing.T) {
	for name, c := range map[string]struct {
		peers        *toolhive.Proxy
		transport    string
		start, ready int32
		sum          string
	}{
		"ours": {nil, "sse", 150, 0, ""}, "theirs": {&toolhive.Proxy{CopiedSum: "x"}, "sse", 90, 5, "x"},
		"theirs of a stdio server": {&toolhive.Proxy{}, "stdio", 90, 0, ""},
	} {
		pods, err := theirs.proxyPods(fetch(func(s *v1beta1.MCPServerSpec) { s.Transport = c.transport }), "{}", "sum", c.peers)
		if err != nil {
			t.Fatal(err)
		}
		p := pods.Spec.Containers[0]
		if start := p.StartupProbe.PeriodSeconds * p.StartupProbe.FailureThreshold; start != c.start || p.ReadinessProbe.InitialDelaySeconds != c.ready {
			t.Errorf("%s: %d s to start, ready after %d s, want %d and %d", name, start, p.ReadinessProbe.InitialDelaySeconds, c.start, c.ready)
		}
		if sum := pods.Annotations["toolhive.stacklok.dev/authserver-ca-checksum"]; sum != c.sum {
			t.Errorf("%s: checksum of certificates %q, want %q", name, sum, c.sum)
		}
	}
}

// A certificate that is mounted as one file does not change in a running pod.
func TestCopiedSum(t *testing.T) {
	at := toolhive.ConfigMapKey{Name: "ca", Key: "ca.crt"}
	proxy := &toolhive.Proxy{CopiedBundles: []toolhive.ConfigMapKey{at}}
	one, _ := copiedSum(proxy, map[toolhive.ConfigMapKey]string{at: "one"})
	two, _ := copiedSum(proxy, map[toolhive.ConfigMapKey]string{at: "two"})
	none, err := copiedSum(&toolhive.Proxy{Bundles: proxy.CopiedBundles}, map[toolhive.ConfigMapKey]string{at: "one"})
	if one == "" || one == two || none != "" || err != nil {
		t.Errorf("of one %q, of two %q, of none %q, error %v", one, two, none, err)
	}
}

// What a look at a configuration has found stays told until the next look; with another spec, or another proxy, it is nobody's.
func TestUnsentStaysTold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server)
		proxy  Flavour
		want   string
	}{
		"as it was":    {nil, ToolHive, "x is not sent"},
		"another spec": {func(s *server) { s.Generation++ }, ToolHive, ""},
		"no reference": {func(s *server) { s.Spec.ExternalAuthConfigRef = nil }, ToolHive, ""},
		"beside another": {func(s *server) {
			s.Spec.OIDCConfig = text(`{}`)
			s.Annotations = map[string]string{v1beta1.AnnotationAcceptNotEnforced: "oidcConfig"}
		}, ToolHive, "kept for other controllers, but without effect on this proxy: spec.oidcConfig"},
	} {
		srv := refServer(func(s *server) { s.Spec.ToolConfigRef = nil })
		setCondition(srv, v1beta1.ConditionSpecEnforced, whileFalse(newProblem(v1beta1.ReasonNotSent, "x is not sent")))
		if c.change != nil {
			c.change(srv)
		}
		for range 2 {
			Settings{Proxy: c.proxy}.decorate(shippedMachine(t), srv)
		}
		got := ""
		for _, s := range seenOf(srv) {
			if s.Type == v1beta1.ConditionSpecEnforced {
				got = s.Message
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
