package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
		fmt.Fprintf(answer, `{"not_after":%q}`, notAfter(len(a.issued)))
	}
}

// notAfter is when the certificate of a number ends.
func notAfter(n int) string { return time.Date(2100, 1, n, 0, 0, 0, 0, time.UTC).Format(time.RFC3339) }

// state is how many certificates were issued, and which were revoked: one that was revoked twice, as after a crash, is one.
func (a *authority) state() (issued int, revoked []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.issued), slices.Compact(slices.Clone(a.revoked))
}

// docs/extend/certificate-rotation.md: the consumers are restarted with the key that is in the Secret, now and at each
// rotation, and what is issued is revoked, whatever is killed or deleted (CERTIFICATE_ROUNDS=20 is the long form). That the key is nowhere else is in controllers/builtin.
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
			return nilUnless(strings.HasPrefix(phase, "Serving "+notAfter(n)), phase)
		})
		secret := &corev1.Secret{}
		w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "shop-tls"}, secret))
		if got, want := string(secret.Data["tls.key"])+string(secret.Data["tls.crt"]), fmt.Sprintf("key-%dchain-%d", n, n); got != want {
			t.Errorf("the Secret has %q, want %q", got, want)
		}
		for _, name := range names {
			until := w.kubectl(t, "get", "deployment", name, "-n", namespace, "-o", `jsonpath={.spec.template.metadata.annotations.example\.com/certificate-until}`)
			if want := notAfter(n); until != want {
				t.Errorf("Deployment %s was restarted for %q, want %q", name, until, want)
			}
		}
	}
	sample, err := os.ReadFile(example(t, "certificate-rotation/sample.yaml"))
	w.do(t, err)
	own := filepath.Join(t.TempDir(), "sample.yaml")
	w.do(t, os.WriteFile(own, []byte(strings.Replace(string(sample), "namespace: shop\n", "namespace: "+namespace+"\n", 1)), 0o600))
	noSecret := func() {
		t.Helper()
		if left := w.kubectl(t, "get", "secret", "-n", namespace, "--ignore-not-found", "shop-tls", "-o", "name"); left != "" {
			t.Errorf("%s is left", left)
		}
	}
	w.kubectl(t, "apply", "-f", own)
	awaitInUse(1)
	w.kubectl(t, "annotate", "-n", namespace, "certificaterotation/shop", "example.com/rotate="+time.Now().Format(time.RFC3339))
	time.Sleep(time.Second) // wherever it is then
	manager.Kill()
	manager = w.manager(t, args...)
	awaitInUse(2)
	w.kubectl(t, "delete", "--timeout=40s", "-n", namespace, "certificaterotation/shop")
	noSecret()
	want := []string{"chain-2"} // its rotation has replaced the first
	revoked := func(label string) {
		t.Helper()
		issued, got := ca.state()
		for n := len(want) + 2; n <= issued; n++ {
			want = append(want, fmt.Sprintf("chain-%d", n))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: revoked (-want +got):\n%s", label, diff)
		}
	}
	revoked("rotated")
	w.disturb(t, fromEnv("CERTIFICATE_ROUNDS", 1), manager, disturbed{
		object: []string{"-n", namespace, "certificaterotation/shop"},
		within: 3 * time.Second,
		begin: func(label string) {
			noSecret()
			revoked("before " + label)
			w.kubectl(t, "apply", "-f", own)
		},
		killed: func(string) { awaitInUse(len(want) + 2) },
		deleted: func(label string) {
			noSecret()
			revoked(label)
		},
	}, args...)
	w.assertNoStates(t, "CertificateRotation")
}
