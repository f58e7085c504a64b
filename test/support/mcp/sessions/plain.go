package sessions

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/container"
	"github.com/phasegate/phasegate/test/support/mcp/kubelet"
)

// Plain plays all transports, each as a test of its own, in the place that is made for it.
func Plain(t *testing.T, at func(*testing.T) *Place) {
	t.Run("streamable-http", func(t *testing.T) { at(t).http("http", v1beta1.TransportStreamableHTTP) })
	t.Run("sse", func(t *testing.T) { at(t).http("sse", v1beta1.TransportSSE) })
	t.Run("stdio", func(t *testing.T) { at(t).stdio("stdio", v1beta1.TransportStreamableHTTP) })
	t.Run("stdio, sse to clients", func(t *testing.T) { at(t).stdio("stdio-sse", v1beta1.TransportSSE) })
}

func (p *Place) http(name, transport string) {
	p.Create(name, transport, nil)
	p.Serve(name, transport)
	p.AwaitPhase(name, "Ready")
	p.Converse(name, transport)
	harness.Eventually(p, "the MCPServer to own the StatefulSet, which goes with it", func() error {
		set := &appsv1.StatefulSet{}
		if err := p.Client.Get(p.Context(), p.key(name), set); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(set); owner == nil || owner.Kind != "MCPServer" {
			return fmt.Errorf("its owner is %v", owner)
		}
		return nil
	})
}

// stdio plays the node of the server's pod, to which the proxy attaches.
func (p *Place) stdio(name, mode string) {
	node := "node-of-" + p.Namespace + "-" + name
	pod := name + "-0"
	running := container.Run(p, echo(p))
	kubelet.Serve(p, p.Client, node, map[string]*container.Container{p.Namespace + "/" + pod + "/mcp": running})
	p.Create(name, v1beta1.TransportStdio, func(s *v1beta1.MCPServerSpec) {
		s.ProxyMode = mode
		s.PodTemplateSpec = &runtime.RawExtension{Raw: []byte(`{"spec":{"nodeName":"` + node + `"}}`)}
	})
	p.play(pod)
	p.AwaitPhase(name, "Ready")
	p.Converse(name, mode)
}

// play makes a pod ready, as its kubelet would.
func (p *Place) play(name string) {
	p.Helper()
	harness.Eventually(p, "pod "+name, func() error {
		pod := &corev1.Pod{}
		if err := p.Client.Get(p.Context(), p.key(name), pod); err != nil {
			return err
		}
		now := metav1.Now()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "mcp", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
		return p.Client.Status().Update(p.Context(), pod)
	})
}

// Converse does with a server what clients do.
func (p *Place) Converse(name, mode string) {
	p.Helper()
	address, _ := p.Proxy(name)
	var session *mcp.ClientSession
	harness.Eventually(p, "a session with "+name, func() (err error) {
		session, err = Open(p.Context(), address, mode, "")
		return err
	})
	defer func() { _ = session.Close() }() // what is tested was seen
	if got := session.InitializeResult().ServerInfo.Name; got != "echo" {
		p.Errorf("initialize: the server calls itself %q", got)
	}
	tools, err := Tools(p.Context(), session)
	if diff := cmp.Diff([]string{"add", "echo"}, tools); diff != "" || err != nil {
		p.Errorf("tools/list: %v (-want +got):\n%s", err, diff)
	}
	if got, err := Call(p.Context(), session, "echo", map[string]any{"text": "hello"}); got != "hello" || err != nil {
		p.Errorf("tools/call: %q, %v", got, err)
	}
}
