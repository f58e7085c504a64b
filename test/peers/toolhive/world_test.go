// Package toolhive serves MCP sessions through ToolHive's own proxyrunner, as
// bin/manager deploys it with --proxy=toolhive: on a real control plane, with the
// rights that the chart and the manager grant. Nodes pretend to run pods; the program
// runs as a process for each pod of a proxy (test/support/podrunner), and an MCP server of ours
// (test/support/mcp) stands for the images of servers.
//
// THV_PROXYRUNNER names the program, which nobody here builds: without it, nothing is run.
package toolhive

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/sessions"
	"github.com/phasegate/phasegate/test/support/podrunner"
)

// envProgram names the program.
const envProgram = "THV_PROXYRUNNER"

const (
	account = "phasegate-manager"
	// theirImage and ourImage are those of the two programs.
	theirImage, ourImage = "registry.example/toolhive/proxyrunner:v0.63.0", "registry.example/phasegate/proxyrunner:1"
	image                = "registry.example/echo:1"
)

// world is a cluster, the manager, and what stands for the network of pods.
type world struct {
	*testing.T
	*harness.Cluster
	pods    *podrunner.Runner
	manager *harness.Process
	ns      string

	mu *sync.Mutex
	// backends are the addresses of servers, and networks those that stand for the network
	// of their proxies, by the names of servers.
	backends, networks map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, mu: &sync.Mutex{}, backends: map[string]string{}, networks: map[string]string{}}
	needs(t, envProgram)
	log.SetLogger(klog.Background())
	w.Cluster = harness.ForTest(t, harness.Options{Own: true, Types: []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1alpha1.AddToScheme}})
	w.install()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "toolhive-"}}
	if err := w.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.ns = ns.Name
	w.runPods()
	w.startManager("toolhive")
	t.Cleanup(w.show)
	return w
}

// needs skips a test for which a program, or a directory, is not given.
func needs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if os.Getenv(name) == "" {
			t.Skipf("not run: %s is not set", name)
		}
	}
}

// runPods runs the program of each pod of a proxy from now on.
func (w *world) runPods() {
	w.Helper()
	home := w.TempDir()
	ours, err := harness.Binary("proxyrunner")
	if err != nil {
		w.Fatal(err)
	}
	w.pods, err = podrunner.Start(podrunner.Options{Cluster: w.Cluster, Programs: map[string]string{v1beta1.ProxyContainer: os.Getenv(envProgram)},
		Edit: func(pod *corev1.Pod, p *harness.Program) {
			if pod.Spec.Containers[0].Image == ourImage {
				p.Path = ours
			}
			p.Env = append(p.Env, "HTTP_PROXY="+w.network(pod.Labels[v1beta1.LabelName]), "NO_PROXY=127.0.0.0/8,localhost", "HOME="+home, "XDG_CONFIG_HOME="+home)
		}})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.pods.Stop)
}

// install applies the CRDs of the chart, and permissive ones of ToolHive's configurations.
func (w *world) install() {
	w.Helper()
	root, err := harness.Root()
	if err != nil {
		w.Fatal(err)
	}
	set, err := crds.Driven(root)
	if err != nil {
		w.Fatal(err)
	}
	for kind, version := range map[string]string{
		"MCPOIDCConfig": "v1beta1", "MCPAuthzConfig": "v1beta1", "MCPTelemetryConfig": "v1beta1", "MCPToolConfig": "v1beta1",
		"MCPExternalAuthConfig": "v1beta1", "MCPWebhookConfig": "v1alpha1",
	} {
		set.CRDs = append(set.CRDs, permissive(kind, version))
	}
	if err := crds.Install(w.Context(), w.Config, set); err != nil {
		w.Fatal(err)
	}
}

func permissive(kind, version string) *unstructured.Unstructured {
	singular := strings.ToLower(kind)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": singular + "s." + v1beta1.GroupVersion.Group},
		"spec": map[string]any{
			"group": v1beta1.GroupVersion.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": singular + "s", "singular": singular},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}

// startManager runs it with the rights that the chart grants with proxy=toolhive, in the
// place of one that runs.
func (w *world) startManager(proxy string) {
	w.Helper()
	rules, err := harness.ChartRules("mcpserver", "mcpserver-toolhive")
	if err != nil {
		w.Fatal(err)
	}
	if err := w.Grant(w.Context(), account, rules); err != nil {
		w.Fatal(err)
	}
	path, err := harness.Binary("manager")
	if err != nil {
		w.Fatal(err)
	}
	if w.manager != nil {
		w.manager.Kill()
	}
	w.manager = harness.ProcessForTest(w, harness.Program{Name: "manager", Path: path, LogDir: w.LogDir, Args: []string{
		"--kubeconfig", w.KubeconfigOf(account), "--controllers", "mcpserver", "--proxy", proxy, "--toolhive-proxy-image", theirImage, "--proxy-image", ourImage,
		"--metrics-bind-address", "0"}})
}

// network is what stands for the DNS and the Services of a cluster, for the proxy of one
// server: an HTTP proxy that leads to the server, whatever name is asked for. The program
// believes its address to be that of the server's pod, and goes on there.
func (w *world) network(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.networks[name] == "" {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.forward(name, rw, r) }))
		w.Cleanup(server.Close)
		w.networks[name] = server.URL
	}
	return w.networks[name]
}

func (w *world) forward(name string, rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	address := w.backends[name]
	w.mu.Unlock()
	if address == "" {
		http.Error(rw, "no server "+name, http.StatusBadGateway)
		return
	}
	proxy := httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", address, address
	}}
	proxy.ServeHTTP(rw, r)
}

// backend starts an MCP server for a name.
func (w *world) backend(name, transport string) *harness.Process {
	w.Helper()
	address, err := harness.FreeAddress()
	if err != nil {
		w.Fatal(err)
	}
	process := sessions.Echo(w, w.LogDir, name, transport, address)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backends[name] = address
	return process
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.ns, Name: name}
}

// create makes a server.
func (w *world) create(name, transport string, change func(*v1beta1.MCPServerSpec)) {
	w.Helper()
	w.place().Create(name, transport, change)
}

// configure makes a configuration of ToolHive.
func (w *world) configure(kind, name string, spec map[string]any) {
	w.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
	obj.SetNamespace(w.ns)
	obj.SetName(name)
	if err := w.Client.Create(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
}

// awaitPhase waits until a server shows a phase, and answers it.
func (w *world) awaitPhase(name, phase string) *v1beta1.MCPServer {
	w.Helper()
	return w.place().AwaitPhase(name, phase)
}

// proxy is the address of the proxy of a server, and its process.
func (w *world) proxy(name string) (string, *harness.Process) {
	w.Helper()
	return w.place().Proxy(name)
}

// show logs what the programs said, where a test failed.
func (w *world) show() {
	if !w.Failed() {
		return
	}
	for _, path := range w.logs() {
		text, err := os.ReadFile(path)
		w.Logf("%s (%v):\n%s", filepath.Base(path), err, text[max(0, len(text)-4000):])
	}
}

// logs are those of the manager and of all proxies.
func (w *world) logs() []string {
	logs, _ := filepath.Glob(filepath.Join(w.LogDir, w.ns+"-*.log")) // the pattern is good
	return append(logs, w.manager.Log)
}
