package builtin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// issuingMachine gets a key with a token, keeps it in a Secret as an effect, and revokes it in the end.
const issuingMachine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: issuing}
spec:
  for: {apiVersion: builtin.phasegate.dev/v1, kind: Plan}
  initial: Asking
  finalizer: builtin.phasegate.dev/issuing
  actions:
  - name: Keep
    use: Apply
    with: {manifest: {apiVersion: v1, kind: Secret, metadata: {name: tls, labels: {size: '${string(self.spec.size)}'}}, stringData: {tls.key: {secretOutput: key}}}}
  - {name: Remove, use: Delete, with: {apiVersion: v1, kind: Secret, name: tls}}
  effects:
  - {name: tls, acquire: Keep, release: Remove}
  phases:
  - name: Asking
    steps:
    - name: Login
      action: HTTPRequest
      with: {url: 'URL/login', headers: {Authorization: {secret: {name: ca, key: token}, format: 'Bearer %s'}}}
      message: 'the CA says ${result.body}'
    - name: Issue
      action: HTTPRequest
      with: {url: 'URL/issue', method: POST, body: {auth: {token: {secret: {name: ca, key: token}}}}, secretOutputs: {key: body.private_key}}
      until: 'result.status == 200'
      poll: 1s
    - {action: Keep}
    next: [{to: Serving, message: 'answered ${string(result.status)} ${result.body}'}]
    timeout: {after: 1h, to: Serving}
    onDelete: {to: Leaving}
  - name: Serving
    kind: steady
    poll: 1h
    onDelete: {to: Leaving}
  - name: Leaving
    deletion: true
    steps:
    - name: Revoke
      action: HTTPRequest
      with: {url: 'URL/revoke', method: POST, body: {key: {secretOutput: key}}}
      message: 'revoking: ${result.body}'
    - {undo: held}
    next: [{to: Gone, message: 'answered ${result.body}'}]
  - {name: Gone, deletion: true, end: true}
`

// ca is a server that quotes what it was asked, as those in a debug mode do, and fails once before it answers.
func ca(t *testing.T, key string) (at *url.URL, revoked chan string) {
	t.Helper()
	revoked = make(chan string, 8)
	failed := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &bytes.Buffer{}
		_, _ = body.ReadFrom(r.Body)
		switch {
		case r.URL.Path == "/issue" && !failed:
			failed = true
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "not yet: %s", body)
		case r.URL.Path == "/issue":
			_ = json.NewEncoder(w).Encode(map[string]string{"private_key": key, "asked": body.String()})
		case r.URL.Path == "/revoke":
			var asked struct{ Key string }
			_ = json.Unmarshal(body.Bytes(), &asked)
			revoked <- asked.Key
			fmt.Fprintf(w, "revoked: %s", body)
		default:
			fmt.Fprintf(w, "hello %s", r.Header.Get("Authorization"))
		}
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, revoked
}

// record is what was logged.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) line(prefix, args string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.text, prefix, args)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// drive runs a machine file until the test ends, and records its logs and traces.
func drive(t *testing.T, file string, at *url.URL) (logs *record, spans *tracetest.SpanRecorder) {
	t.Helper()
	logs, spans = &record{}, tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	// From level 8 on, client-go logs whole requests: docs/operate/security.md says so.
	logger := funcr.New(logs.line, funcr.Options{Verbosity: 7})
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), logger))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "issuing.yaml"), []byte(strings.ReplaceAll(file, "URL", at.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := machinestore.Load(machinestore.Options{Shipped: fstest.MapFS{}, Dir: dir, Log: logger,
		Bindings: func(*fsm.Definition) (fsm.Bindings, error) { return generic.Bindings(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	if len(store.Names()) == 0 {
		t.Fatalf("the machine was refused: %s", logs)
	}
	fleet := &generic.Fleet{Config: shared.Cluster(t).Config, Store: store, Compiled: func(string) bool { return false },
		HTTP: local(at.Host), Metrics: runner.NewMetrics(prometheus.NewRegistry())}
	ended := make(chan error, 2)
	for _, part := range []interface{ Start(context.Context) error }{store, fleet} {
		go func() { ended <- part.Start(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		otel.SetTracerProvider(before)
	})
	return logs, spans
}

// everything is each object of each kind that a cluster has and can list, as JSON, but Secrets.
func everything(t *testing.T) map[string]string {
	t.Helper()
	finder, err := discovery.NewDiscoveryClientForConfig(shared.Cluster(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := finder.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, resources := range lists {
		for _, r := range resources.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Secret" {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.FromAPIVersionAndKind(resources.GroupVersion, r.Kind))
			if err := shared.Cluster(t).Client.List(t.Context(), list); err != nil && !apierrs.IsNotFound(err) && !apierrs.IsMethodNotSupported(err) {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for i := range list.Items {
				data, err := json.Marshal(list.Items[i].Object)
				if err != nil {
					t.Fatal(err)
				}
				all[r.Kind+" "+client.ObjectKeyFromObject(&list.Items[i]).String()] = string(data)
			}
		}
	}
	return all
}

// findNowhere finds values in texts, as they are and in base64.
func findNowhere(t *testing.T, when string, texts map[string]string, values ...string) {
	t.Helper()
	for what, text := range texts {
		for _, value := range values {
			if strings.Contains(text, value) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value))) {
				t.Errorf("%s: %s has %s: %s", when, what, value, text)
			}
		}
	}
}

// goes waits until the state is gone, and with it the Secret with its outputs, and the one that the release removes.
func goes(t *testing.T, c client.Client, namespace string, state client.ObjectKey) {
	t.Helper()
	harness.Eventually(t, "all to be gone", func() error {
		left := &corev1.SecretList{}
		if err := c.List(t.Context(), left, client.InNamespace(namespace)); err != nil {
			return err
		}
		if err := c.Get(t.Context(), state, &v1alpha1.MachineState{}); !apierrs.IsNotFound(err) {
			return fmt.Errorf("the state is there: %w", err)
		}
		if len(left.Items) != 1 || left.Items[0].Name != "ca" {
			return fmt.Errorf("%d Secrets are left", len(left.Items))
		}
		return nil
	})
}

// Fault: a private key that a CA had answered with was in the status and in the MachineState. In a whole run, what is secret
// is in Secrets alone: in no other object, no Event, no log line, no trace.
func TestSecretsAreInSecretsAlone(t *testing.T) {
	const key, token = "PRIVATE-KEY-OF-THIS-RUN", "TOKEN-OF-THIS-RUN"
	world := shared.Cluster(t).Client
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leaks-"}}
	if err := world.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	secretOf(t, world, ns.Name, "ca", map[string]string{"token": token})
	at, revoked := ca(t, key)
	logs, spans := drive(t, issuingMachine, at)
	p := &plan{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "plan"}, Spec: map[string]any{"size": int64(1)}}
	if err := world.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	state, tls := &v1alpha1.MachineState{}, &corev1.Secret{}
	stateKey := client.ObjectKey{Name: v1alpha1.MachineStateName("issuing", p.UID)}
	harness.Eventually(t, "the plan to serve", func() error {
		if err := world.Get(t.Context(), stateKey, state); err != nil || state.Status.Phase != "Serving" {
			return fmt.Errorf("it is in %s at %s: %v, %w", state.Status.Phase, state.Status.Step, state.Status.Blocked, err)
		}
		return world.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "tls"}, tls)
	})
	if got := string(tls.Data["tls.key"]); got != key {
		t.Errorf("the Secret has %q", got)
	}
	look := func(when string) {
		t.Helper()
		texts := everything(t)
		texts["the log"], texts["the trace"] = logs.String(), fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(spans.Ended()))
		if len(spans.Ended()) == 0 || !strings.Contains(texts["the log"], "Serving") {
			t.Fatalf("%s: nothing was looked at", when)
		}
		findNowhere(t, when, texts, key, token)
	}
	look("while it serves")
	if err := world.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := <-revoked; got != key {
		t.Errorf("revoked %q, want the key", got)
	}
	goes(t, world, ns.Name, stateKey)
	look("after it is gone")
}
