package manager

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

const callCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: calls.example.org}
spec:
  group: example.org
  names: {kind: Call, plural: calls}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const callMachine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: call}
spec:
  for: {apiVersion: example.org/v1, kind: Call}
  initial: Calling
  phases:
  - name: Calling
    steps:
    - {action: HTTPRequest, with: {url: '%s'}}
    next:
    - {to: Called}
    timeout: {after: 1h, stalled: NobodyAnswers}
    onDelete: {immediate: true}
  - {name: Called, terminal: success, onDelete: {immediate: true}}
`

// SIGTERM in the middle of a slow action: the action is told to end, what it came
// to is dropped, the lease is given up after that, and nothing is written any more.
func TestShutdownDuringAnAction(t *testing.T) {
	c := shared.Cluster(t)
	asked, hungUp := make(chan struct{}, 1), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
		close(hungUp)
	}))
	defer slow.Close()
	m := start(t, admin(t), nil, "--controllers=custom", "--phases-dir", callMachines(t, slow.URL), "--allow-http-host", strings.TrimPrefix(slow.URL, "http://"), "--allow-private-http=127.0.0.0/8",
		"--leader-elect", "--leader-elect-namespace=default", "--leader-elect-lease-name=shutdown")
	call := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Call"}}
	call.SetGenerateName("one-")
	call.SetNamespace("default")
	if err := c.Client.Create(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	await(t, "the action to begin", asked)
	m.awaitProbe(t, "/readyz?verbose", http.StatusOK, `\[\+\]machines ok`, `.*leader ok: this process leads`, `\[\+\]custom ok: call runs for CRD`)
	before := read(t, call).GetResourceVersion()

	began := time.Now()
	if err := m.Stop(grace); err != nil {
		t.Errorf("ended with %v", err)
	}
	t.Logf("ended %s after SIGTERM", time.Since(began).Round(time.Millisecond))
	await(t, "the action to be told to end", hungUp)
	after := read(t, call)
	state := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "MachineState"}}
	state.SetName(v1alpha1.MachineStateName("call", call.GetUID()))
	if phase, _, _ := unstructured.NestedString(read(t, state).Object, "status", "phase"); after.GetResourceVersion() != before || phase != "Calling" {
		t.Errorf("phase %s, resourceVersion %s, was %s: the outcome of what was cut off was written", phase, after.GetResourceVersion(), before)
	}
	lease := &coordinationv1.Lease{}
	lease.Name, lease.Namespace = "shutdown", "default"
	if holder := ptr.Deref(read(t, lease).Spec.HolderIdentity, ""); holder != "" {
		t.Errorf("%s still holds the lease", holder)
	}
}

// callMachines installs the CRD of Call and returns a directory with its machine.
func callMachines(t *testing.T, url string) string {
	t.Helper()
	crd, dir := &unstructured.Unstructured{}, t.TempDir()
	if err := yaml.Unmarshal([]byte(callCRD), crd); err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), shared.Cluster(t).Config, crds.Set{CRDs: []*unstructured.Unstructured{crd}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "call.yaml"), fmt.Appendf(nil, callMachine, url), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read fills an object from the API server.
func read[T client.Object](t *testing.T, obj T) T {
	t.Helper()
	if err := shared.Cluster(t).Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func await(t *testing.T, what string, happens <-chan struct{}) {
	t.Helper()
	select {
	case <-happens:
	case <-time.After(harness.Patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// Something that does not end, here a client of the metrics that never says what
// it wants, keeps the process for --shutdown-timeout or until the second signal.
func TestShutdownThatHangs(t *testing.T) {
	cases := map[string]struct {
		why, timeout string
		signals      int
		code         int
		says         string
	}{
		"timeout":       {why: "the kubelet would kill it a little later", timeout: "1s", signals: 1, says: "the rest is abandoned"},
		"second signal": {why: "somebody at a terminal does not want to wait", timeout: "1h", signals: 2, code: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := start(t, admin(t), nil, "--metrics-secure=false", "--shutdown-timeout", c.timeout)
			m.plain = true
			m.awaitMetrics(t, http.StatusOK)
			m.hang(t)
			for range c.signals {
				if err := syscall.Kill(m.PID(), syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				m.awaitLog(t, "Stopping and waiting for HTTP servers")
			}
			await(t, "its end: "+c.why, m.Ended())
			code := 0
			var failed *exec.ExitError
			if err := m.Stop(grace); errors.As(err, &failed) {
				code = failed.ExitCode()
			}
			if said := m.Tail(100); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit code %d, want %d and %q: %s; the log:\n%s", code, c.code, c.says, c.why, said)
			}
		})
	}
}

// hang asks for metrics and does not finish the question, until the end of the test.
func (m *manager) hang(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", m.metrics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("GET /metrics HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	m.awaitMetrics(t, http.StatusOK) // over another connection, which is accepted later
}
