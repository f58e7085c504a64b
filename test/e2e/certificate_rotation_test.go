package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

// authority is a CA that gives out key-1, key-2 and so on: the same again for the same request, as the Idempotency-Key says.
type authority struct {
	mu      sync.Mutex
	issued  []string
	revoked []string
}

func (a *authority) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer of-the-ca" {
		answer.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case r.URL.Path == "/revocations":
		var asked struct{ Chain string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		a.revoked = append(a.revoked, asked.Chain)
	case r.Method == http.MethodPost:
		if request := r.Header.Get("Idempotency-Key"); len(a.issued) == 0 || a.issued[len(a.issued)-1] != request {
			a.issued = append(a.issued, request)
		}
		answer.WriteHeader(http.StatusCreated)
		fmt.Fprintf(answer, `{"private_key":"key-%d","chain":"chain-%d"}`, len(a.issued), len(a.issued))
	default:
		fmt.Fprintf(answer, `{"not_after":%q}`, time.Date(2100, 1, len(a.issued), 0, 0, 0, 0, time.UTC).Format(time.RFC3339))
	}
}

// docs/extend/certificate-rotation.md: the consumers are restarted with the key that is in the Secret, now and at each
// rotation, and the last certificate is revoked. That the key is nowhere else is in controllers/builtin.
func TestCertificateRotation(t *testing.T) {
	w := pristine(t)
	const namespace = "shop-tls"
	ca := &authority{}
	server := httptest.NewServer(ca)
	t.Cleanup(server.Close)
	w.exampleIn(t, namespace, "certificate-rotation", "certificaterotations.example.com")
	w.kubectl(t, "create", "secret", "generic", "ca-token", "-n", namespace, "--from-literal=token=of-the-ca")
	names := []string{"cart", "web"}
	for _, name := range names {
		w.kubectl(t, "create", "deployment", name, "-n", namespace, "--image=shop:1")
		w.kubectl(t, "label", "deployment", name, "-n", namespace, "app.kubernetes.io/part-of=shop")
	}
	phases := directory(t, "certificate-rotation/certificate-rotation.yaml")
	file := filepath.Join(phases, "certificate-rotation.yaml")
	text, err := os.ReadFile(file)
	w.do(t, err)
	w.do(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "https://ca.example.org", server.URL)), 0o600))
	args := asking(phases, server)
	manager := w.manager(t, args...)

	awaitInUse := func(n int) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("certificate %d to be in use", n), func() error {
			phase := w.kubectl(t, "get", "-n", namespace, "certificaterotation/shop", "-o", "jsonpath={.status.phase} {.status.notAfter} {.status.message}")
			return nilUnless(strings.HasPrefix(phase, fmt.Sprintf("Serving 2100-01-0%dT00:00:00Z", n)), phase)
		})
		secret := &corev1.Secret{}
		w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "shop-tls"}, secret))
		if got, want := string(secret.Data["tls.key"])+string(secret.Data["tls.crt"]), fmt.Sprintf("key-%dchain-%d", n, n); got != want {
			t.Errorf("the Secret has %q, want %q", got, want)
		}
		for _, name := range names {
			until := w.kubectl(t, "get", "deployment", name, "-n", namespace, "-o", `jsonpath={.spec.template.metadata.annotations.example\.com/certificate-until}`)
			if want := fmt.Sprintf("2100-01-0%dT00:00:00Z", n); until != want {
				t.Errorf("Deployment %s was restarted for %q, want %q", name, until, want)
			}
		}
	}
	sample, err := os.ReadFile(example(t, "certificate-rotation/sample.yaml"))
	w.do(t, err)
	own := filepath.Join(t.TempDir(), "sample.yaml")
	w.do(t, os.WriteFile(own, []byte(strings.Replace(string(sample), "namespace: shop\n", "namespace: "+namespace+"\n", 1)), 0o600))
	w.kubectl(t, "apply", "-f", own)
	awaitInUse(1)
	w.kubectl(t, "annotate", "-n", namespace, "certificaterotation/shop", "example.com/rotate="+time.Now().Format(time.RFC3339))
	time.Sleep(time.Second) // wherever it is then
	manager.Kill()
	w.manager(t, args...)
	awaitInUse(2)
	w.kubectl(t, "delete", "--timeout=40s", "-n", namespace, "certificaterotation/shop")
	if left := w.kubectl(t, "get", "secret", "-n", namespace, "--ignore-not-found", "shop-tls", "-o", "name"); left != "" {
		t.Errorf("%s is left", left)
	}
	w.assertNoStates(t, "CertificateRotation")
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if diff := cmp.Diff([]string{"chain-2"}, ca.revoked); diff != "" || len(ca.issued) != 2 {
		t.Errorf("%d were issued, want 2; revoked (-want +got):\n%s", len(ca.issued), diff)
	}
}
