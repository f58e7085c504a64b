// Package sessions plays what a client of an MCPServer without protection does, by all
// transports, whichever proxy is in front: the tests of ours (test/mcpserver) and of
// ToolHive's (test/peers/toolhive) share it. The servers are those of test/support/mcp/echoserver.
//
// It does not know which proxy it is: a manager makes it, and a Place says how it finds its server.
package sessions

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/podrunner"
)

const (
	image = "registry.example/echo:1"
	// Port is where a proxy and an HTTP server listen by default.
	Port = "8080"
)

// Place is a namespace with a manager whose proxies are of one flavour. Each method
// ends the test when it fails.
type Place struct {
	testing.TB
	*harness.Cluster
	Namespace string
	Manager   *harness.Process
	// Pods runs the programs of the proxies.
	Pods *podrunner.Runner
	// Serve starts an HTTP server of a transport where the proxy of an MCPServer, which exists,
	// looks for it: the nodes of the cluster start none.
	Serve func(name, transport string)
}

func (p *Place) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: name}
}

// Create makes an MCPServer, with a change; nil for none.
func (p *Place) Create(name, transport string, change func(*v1beta1.MCPServerSpec)) {
	p.Helper()
	srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
	srv.Spec.Image, srv.Spec.Transport = image, transport
	if change != nil {
		change(&srv.Spec)
	}
	if err := p.Client.Create(p.Context(), srv); err != nil {
		p.Fatal(err)
	}
}

// AwaitPhase waits until a server shows a phase for the spec that it has, and returns it.
func (p *Place) AwaitPhase(name, phase string) *v1beta1.MCPServer {
	p.Helper()
	srv := &v1beta1.MCPServer{}
	harness.Eventually(p, name+" in phase "+phase, func() error {
		if err := p.Manager.Alive(); err != nil {
			return err
		}
		if err := p.Client.Get(p.Context(), p.key(name), srv); err != nil {
			return err
		}
		if srv.Status.Phase != phase || srv.Status.ObservedGeneration != srv.Generation {
			return fmt.Errorf("phase %q: %s", srv.Status.Phase, srv.Status.Message)
		}
		return nil
	})
	return srv
}

// Pod is that of the proxy of a server, which has one, once its process runs.
func (p *Place) Pod(name string) types.NamespacedName {
	p.Helper()
	var pod types.NamespacedName
	harness.Eventually(p, "a proxy of "+name, func() (err error) {
		pod, err = p.pod(name)
		return err
	})
	return pod
}

func (p *Place) pod(name string) (types.NamespacedName, error) {
	list := &corev1.PodList{}
	if err := p.Client.List(p.Context(), list, client.InNamespace(p.Namespace), client.MatchingLabels(v1beta1.ProxyLabels(name))); err != nil {
		return types.NamespacedName{}, err
	}
	if len(list.Items) != 1 {
		return types.NamespacedName{}, fmt.Errorf("%d pods", len(list.Items))
	}
	pod := p.key(list.Items[0].Name)
	_, err := p.Pods.Process(pod)
	return pod, err
}

// Proxy is the address of the proxy of a server, which is healthy, and its process.
func (p *Place) Proxy(name string) (address string, process *harness.Process) {
	p.Helper()
	harness.Eventually(p, "a proxy of "+name+" that is healthy", func() error {
		pod, err := p.pod(name)
		if err != nil {
			return err
		}
		if process, err = p.Pods.Process(pod); err != nil {
			return err
		}
		address = "http://" + p.Pods.Host(pod) + ":" + Port
		return Healthy(address)
	})
	return address, process
}

// Healthy is nil if a proxy says that it is.
func Healthy(address string) error {
	r, err := http.Get(address + v1beta1.HealthPath)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// Echo starts an HTTP server for the duration of a test.
func Echo(t testing.TB, logDir, name, transport, address string) *harness.Process {
	t.Helper()
	return harness.ProcessForTest(t, harness.Program{
		Name: "echo-" + name, Path: echo(t), LogDir: logDir, Args: []string{"-transport=" + transport, "-listen=" + address},
	})
}

func echo(t testing.TB) string {
	t.Helper()
	path, err := harness.Binary("echoserver")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
