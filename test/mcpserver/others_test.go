package mcpserver

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

func TestWhatOthersDoStays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why     string
		command []string
		// done is nil once it has happened.
		done func(s *space, before workload) error
	}{
		"a proxy scaled": {
			why: "without spec.replicas an autoscaler decides", command: []string{"scale", "deployment/fetch", "--replicas=2"},
			done: func(s *space, _ workload) error { return same(2, int(s.deployment("fetch").Status.ReadyReplicas)) },
		},
		"a proxy restarted": {
			why: "kubectl rollout restart is not undone", command: []string{"rollout", "restart", "deployment/fetch"},
			done: func(s *space, before workload) error {
				return same(before.ReplicaSets+1, s.workload("fetch").ReplicaSets)
			},
		},
		"a backend restarted": {
			why: "nor by a proxy", command: []string{"rollout", "restart", "statefulset/fetch"},
			done: func(s *space, before workload) error { return same(before.Revisions+1, s.workload("fetch").Revisions) },
		},
		"a label added": {
			why: "a policy engine may want it there", command: []string{"label", "deployment/fetch", "team=a"},
			done: func(s *space, _ workload) error { return same("a", s.deployment("fetch").Labels["team"]) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			before := s.workload("fetch")
			s.kubectl(c.command...)
			harness.Eventually(t, "it to happen", func() error { return c.done(s, before) })
			s.awaitPhase("fetch", "Ready")
			s.awaitRolledOut("fetch")
			after := s.workload("fetch")

			s.pass("fetch")
			s.awaitPhase("fetch", "Ready")
			if err := c.done(s, before); err != nil {
				t.Errorf("%s, but a reconcile took it back: %v", c.why, err)
			}
			if diff := cmp.Diff(after, s.workload("fetch")); diff != "" {
				t.Errorf("%s, but a reconcile replaced something (-before +after):\n%s", c.why, diff)
			}
		})
	}
}

// awaitRolledOut waits until both parts are of their newest templates.
func (s *space) awaitRolledOut(name string) {
	s.t.Helper()
	s.kubectl("rollout", "status", "deployment/"+name, "--timeout=3m")
	s.kubectl("rollout", "status", "statefulset/"+name, "--timeout=3m")
}

func TestWhatOthersBreakIsMended(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why     string
		command []string
		mended  func(s *space) error
	}{
		"the image of the proxy": {
			why: "it decides who sees the calls", command: []string{"set", "image", "deployment/fetch", "toolhive=registry.example/evil:1"},
			mended: func(s *space) error {
				return same(proxyImage, s.deployment("fetch").Spec.Template.Spec.Containers[0].Image)
			},
		},
		"the Service": {
			why: "without it no client comes", command: []string{"delete", "service", "mcp-fetch-proxy"},
			mended: func(s *space) error {
				return s.Client.Get(s.t.Context(), s.key("mcp-fetch-proxy"), &corev1.Service{})
			},
		},
		"the Deployment": {
			why: "it is not Ready meanwhile", command: []string{"delete", "deployment", "fetch"},
			mended: func(s *space) error {
				d := &appsv1.Deployment{}
				if err := s.Client.Get(s.t.Context(), s.key("fetch"), d); err != nil {
					return err
				}
				return same(1, int(d.Status.ReadyReplicas))
			},
		},
		"the StatefulSet": {
			why: "a proxy that lives makes it again", command: []string{"delete", "statefulset", "fetch"},
			mended: func(s *space) error {
				sts := &appsv1.StatefulSet{}
				if err := s.Client.Get(s.t.Context(), s.key("fetch"), sts); err != nil {
					return err
				}
				return same(1, int(sts.Status.ReadyReplicas))
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			s.awaitHealthy(s.proxies("fetch")[0].Name)
			s.kubectl(c.command...)
			harness.Eventually(t, "it to be mended: "+c.why, func() error { return c.mended(s) })
			s.awaitPhase("fetch", "Ready")
		})
	}
}

// Nobody answers an attach here, so the proxy of this server waits for ever; what
// the operator makes of it is the same.
func TestStdioServerHasOneProxy(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create("fetch", func(srv *v1beta1.MCPServer) {
		srv.Spec.Transport, srv.Spec.Replicas = v1beta1.TransportStdio, ptr.To[int32](3)
	})
	s.awaitPhase("fetch", "Ready")
	s.awaitCondition("fetch", v1beta1.ConditionStdioReplicaCapped, "True", v1beta1.ReasonStdioTransportCapAt1)
	d := s.deployment("fetch")
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%d proxies, %s: two on one stdin would read each other's answers", *d.Spec.Replicas, d.Spec.Strategy.Type)
	}
	err := s.Client.Get(t.Context(), s.key(v1beta1.BackendServiceName("fetch")), &corev1.Service{})
	if err == nil {
		t.Error("there is a Service for a server that listens nowhere")
	}
	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Image = secondImage })
	s.until("fetch", "Ready with the other image", func(srv *v1beta1.MCPServer) error {
		c := meta.FindStatusCondition(srv.Status.Conditions, "Ready")
		if c == nil || c.Status != "True" || c.ObservedGeneration != srv.Generation {
			return errors.New("not Ready")
		}
		return same(secondImage, s.imageOf("fetch"))
	})
}
