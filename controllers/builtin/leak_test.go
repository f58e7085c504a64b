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
	"time"

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
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// rotation is the example whose life is looked at: it gets a key with a token, keeps it in a Secret as an effect, and revokes
// the certificate in the end.
const rotation = "../../docs/extend/examples/certificate-rotation/"

// ca is a server that quotes what it was asked, as those in a debug mode do, and fails once before it answers.
func ca(t *testing.T, key, chain string) (at *url.URL, revoked chan string) {
	t.Helper()
	revoked = make(chan string, 8)
	failed := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &bytes.Buffer{}
		_, _ = body.ReadFrom(r.Body)
		quoted := r.Header.Get("Authorization") + " " + body.String()
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/certificates" && !failed:
			failed = true
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "not yet: %s", quoted)
		case r.Method == http.MethodPost && r.URL.Path == "/certificates":
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]string{"private_key": key, "chain": chain, "asked": quoted})
		case r.URL.Path == "/revocations":
			var asked struct{ Chain string }
			_ = json.Unmarshal(body.Bytes(), &asked)
			revoked <- asked.Chain
			fmt.Fprintf(w, "revoked: %s", quoted)
		default:
			_ = json.NewEncoder(w).Encode(map[string]string{"not_after": time.Now().AddDate(0, 0, 30).UTC().Format(time.RFC3339), "asked": quoted})
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

// drive runs the example with a server in place of its CA until the test ends, and records its logs and traces.
func drive(t *testing.T, at *url.URL) (logs *record, spans *tracetest.SpanRecorder) {
	t.Helper()
	logs, spans = &record{}, tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	// From level 8 on, client-go logs whole requests: docs/operate/security.md says so.
	logger := funcr.New(logs.line, funcr.Options{Verbosity: 7})
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), logger))
	dir := t.TempDir()
	file, err := os.ReadFile(rotation + "certificate-rotation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("https://ca.example.org", at.String(), "poll: 30s", "poll: 1s").Replace(string(file))
	if err := os.WriteFile(filepath.Join(dir, "rotation.yaml"), []byte(text), 0o600); err != nil {
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
		if len(left.Items) != 1 || left.Items[0].Name != "ca-token" {
			return fmt.Errorf("%d Secrets are left", len(left.Items))
		}
		return nil
	})
}

// Fault: a private key that a CA had answered with was in the status and in the MachineState. In a whole run, what is secret
// is in Secrets alone: in no other object, no Event, no log line, no trace.
func TestSecretsAreInSecretsAlone(t *testing.T) {
	const key, chain, token = "PRIVATE-KEY-OF-THIS-RUN", "CHAIN-OF-THIS-RUN", "TOKEN-OF-THIS-RUN"
	world := shared.Cluster(t).Client
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leaks-"}}
	if err := world.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	secretOf(t, world, ns.Name, "ca-token", map[string]string{"token": token})
	createRotations(t, world)
	at, revoked := ca(t, key, chain)
	logs, spans := drive(t, at)
	r := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"dnsNames": []any{"shop.example.com"}, "consumers": map[string]any{"app": "shop"}, "renewBefore": "240h"}}}
	r.SetAPIVersion("example.com/v1")
	r.SetKind("CertificateRotation")
	r.SetNamespace(ns.Name)
	r.SetName("shop")
	if err := world.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	state, tls := &v1alpha1.MachineState{}, &corev1.Secret{}
	stateKey := client.ObjectKey{Name: v1alpha1.MachineStateName("certificate-rotation", r.GetUID())}
	harness.Eventually(t, "the certificate to be in use", func() error {
		if err := world.Get(t.Context(), stateKey, state); err != nil || state.Status.Phase != "Serving" {
			return fmt.Errorf("it is in %s at %s: %v, %w", state.Status.Phase, state.Status.Step, state.Status.Blocked, err)
		}
		return world.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "shop-tls"}, tls)
	})
	if got := string(tls.Data["tls.key"]) + string(tls.Data["tls.crt"]); got != key+chain {
		t.Errorf("the Secret has %q", got)
	}
	look := func(when string) {
		t.Helper()
		texts := everything(t)
		texts["the log"], texts["the trace"] = logs.String(), fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(spans.Ended()))
		if len(spans.Ended()) == 0 || !strings.Contains(texts["the log"], "Serving") {
			t.Fatalf("%s: nothing was looked at", when)
		}
		findNowhere(t, when, texts, key, chain, token)
	}
	look("while it serves")
	if err := world.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := <-revoked; got != chain {
		t.Errorf("revoked %q, want the certificate", got)
	}
	goes(t, world, ns.Name, stateKey)
	look("after it is gone")
}

// createRotations makes the kind of the example.
func createRotations(t *testing.T, c client.Client) {
	t.Helper()
	text, err := os.ReadFile(rotation + "crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the kind to be served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("example.com/v1")
		list.SetKind("CertificateRotation")
		return c.List(t.Context(), list)
	})
}
