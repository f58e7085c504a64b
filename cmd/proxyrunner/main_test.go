package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/test/support/harness"
)

// shared runs pods, or pretends to: a StatefulSet gets ready.
var shared = harness.Shared{Start: func() (*harness.Cluster, error) {
	return harness.Start(context.Background(), harness.Options{Own: true, Nodes: 1})
}}

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	shared.Main(m)
}

// program is one that `make build` makes.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := harness.Binary(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort is one that nobody listened at a moment ago.
func freePort(t testing.TB) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// grace is what a pod has to end.
const grace = 30 * time.Second

// world is a proxy and the server behind it, as processes.
type world struct {
	testing.TB
	config  runconfig.RunConfig
	proxy   *harness.Process
	echo    *harness.Process
	address string
	logs    string
	// namespace is where the proxy is.
	namespace string
	// program is that of the proxy; empty for the one that `make build` makes.
	program string
}

// newWorld makes the configuration of a proxy in a namespace of its own. What its
// objects belong to is a ConfigMap: the garbage collector looks.
func newWorld(t testing.TB, cluster *harness.Cluster, transport string) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "proxy-"}}
	if err := cluster.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "owner"}}
	if err := cluster.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	return worldIn(t, cluster.Kubeconfig, namespace.Name, transport, string(owner.UID))
}

// worldIn is a world whose owner is there.
func worldIn(t testing.TB, kubeconfig, namespace, transport, owner string) *world {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("POD_NAMESPACE", namespace)
	w := &world{TB: t, logs: t.TempDir(), namespace: namespace, config: runconfig.RunConfig{
		Name: "echo", Transport: transport, Host: "127.0.0.1", Port: freePort(t), TargetHost: "127.0.0.1", TargetPort: freePort(t),
		Owner: &runconfig.Owner{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner},
	}}
	w.address = fmt.Sprintf("http://127.0.0.1:%d", w.config.Port)
	return w
}

func (w *world) echoAddress() string { return fmt.Sprintf("http://127.0.0.1:%d", w.config.TargetPort) }

// startEcho starts the server that the proxy is to find.
func (w *world) startEcho() {
	w.Helper()
	w.echo = harness.ProcessForTest(w, harness.Program{Name: "echoserver", Path: program(w, "echoserver"), LogDir: w.logs, Args: []string{
		"-transport=" + w.config.Transport, fmt.Sprintf("-listen=127.0.0.1:%d", w.config.TargetPort)}})
}

func (w *world) startProxy() {
	w.Helper()
	text, err := json.Marshal(w.config)
	if err != nil {
		w.Fatal(err)
	}
	dir := w.TempDir()
	writeFile(w, filepath.Join(dir, "runconfig.json"), string(text))
	path := w.program
	if path == "" {
		path = program(w, "proxyrunner")
	}
	w.proxy = harness.ProcessForTest(w, harness.Program{Name: "proxyrunner", Path: path, Dir: dir, LogDir: w.logs,
		Args: []string{"run", "--some-flag-of-the-peer=1",
			`--k8s-pod-patch={"spec":{"hostname":"echo"}}`, "example.org/echo:1", "--", "--verbose", "x"}})
}

// health is what a probe is told.
type health struct {
	Code   int `json:"-"`
	Status string
	MCP    struct {
		Available bool
		Error     string
	}
}

func (w *world) health() (health, error) {
	var h health
	r, err := http.Get(w.address + "/health")
	if err != nil {
		return h, err
	}
	defer r.Body.Close()
	h.Code = r.StatusCode
	return h, json.NewDecoder(r.Body).Decode(&h)
}

// await waits until the proxy reports status.
func (w *world) await(status string) {
	w.Helper()
	harness.Eventually(w, "the proxy to be "+status, func() error {
		if err := w.proxy.Alive(); err != nil {
			return err
		}
		h, err := w.health()
		if err == nil && h.Status != status {
			err = fmt.Errorf("%+v", h)
		}
		return err
	})
}

// transportTo is that of a client that speaks what the server does.
func (w *world) transportTo(address string) mcp.Transport { return w.transportOf(nil, address) }

// transportOf is transportTo by way of an HTTP client; nil for the usual one.
func (w *world) transportOf(c *http.Client, address string) mcp.Transport {
	if w.config.Transport == "sse" {
		return &mcp.SSEClientTransport{Endpoint: address + "/sse", HTTPClient: c}
	}
	return &mcp.StreamableClientTransport{Endpoint: address + "/mcp", HTTPClient: c, MaxRetries: -1}
}

func (w *world) connect(address string) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.Context(), w.transportTo(address), nil)
}

// client is a session that ends with the test.
func (w *world) client() *mcp.ClientSession {
	w.Helper()
	session, err := w.connect(w.address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = session.Close() }) // the server may be gone by then
	return session
}

var errOtherAnswer = errors.New("another answer")

// say calls the tool echo and checks its answer.
func say(ctx context.Context, session *mcp.ClientSession, text string) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if len(result.Content) != 1 {
		return fmt.Errorf("%d contents, want 1", len(result.Content))
	}
	if got, ok := result.Content[0].(*mcp.TextContent); !ok || got.Text != text {
		return fmt.Errorf("%w than %s", errOtherAnswer, text)
	}
	return nil
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
