package mcpserver

import (
	"net"
	"testing"

	"github.com/phasegate/phasegate/test/support/mcp/sessions"
)

// What test/peers/toolhive plays through ToolHive's proxyrunner, as far as no protection is asked for.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	sessions.Plain(t, func(t *testing.T) *sessions.Place {
		t.Parallel()
		return s.place(t)
	})
}

// place is the namespace as session tests see it.
func (s *space) place(t *testing.T) *sessions.Place {
	p := &sessions.Place{TB: t, Cluster: s.Cluster, Namespace: s.ns, Manager: s.manager, Pods: s.pods}
	p.Serve = func(name, transport string) {
		sessions.Echo(t, s.LogDir, s.ns+"-"+name, transport, net.JoinHostPort(s.pods.Target(p.Pod(name)), sessions.Port))
	}
	return p
}
