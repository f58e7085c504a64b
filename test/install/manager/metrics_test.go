package manager

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/phasegate/phasegate/test/support/harness"
)

// Metrics are for whom the cluster allows to get them. A certificate that takes the
// place of another, as the kubelet exchanges that of a Secret, is served without a
// restart.
func TestMetricsOverTLS(t *testing.T) {
	cert := newCertificate(t)
	cert.set(t, "first")
	m := start(t, admin(t), nil, "--metrics-cert-dir", cert.dir)
	m.awaitMetrics(t, http.StatusUnauthorized)
	reader := tokenOf(t, "metrics-reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
	cases := map[string]struct {
		why, token string
		code       int
		says       string
	}{
		"nobody":     {why: "metrics tell names of objects", code: http.StatusUnauthorized},
		"a stranger": {why: "a token is no right", token: tokenOf(t, "stranger"), code: http.StatusForbidden},
		"a forger":   {why: "the API server is asked who it is; controller-runtime calls its no an error", token: "not-a-token", code: http.StatusInternalServerError},
		"the reader": {why: "it has the one right", token: reader, code: http.StatusOK, says: "phasegate_requests_in_flight_limit 90"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, body, served, err := get("https://"+m.metrics+"/metrics", c.token)
			if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.Contains(body, c.says) || c.says == "" && strings.Contains(body, "phasegate_") {
				t.Errorf("got %d, want %d and %q: %s; it said:\n%.300s", code, c.code, c.says, c.why, body)
			}
			if !strings.HasPrefix(served, "first@") {
				t.Errorf("certificate of %q, want first", served)
			}
		})
	}

	cert.set(t, "second")
	harness.Eventually(t, "the second certificate", func() error {
		code, _, served, err := get("https://"+m.metrics+"/metrics", reader)
		if err == nil && (code != http.StatusOK || !strings.HasPrefix(served, "second@")) {
			err = fmt.Errorf("%d with the certificate of %q", code, served)
		}
		return err
	})
	if err := m.Stop(grace); err != nil {
		t.Error(err)
	}
}

// Without a certificate one is made; without TLS nobody is asked who they are.
func TestMetricsWithoutCertificate(t *testing.T) {
	m := start(t, admin(t), nil)
	if served := m.awaitMetrics(t, http.StatusUnauthorized); !strings.HasPrefix(served, "localhost@") {
		t.Errorf("certificate of %q, want one for localhost", served)
	}
	if code, _, _, err := get("http://"+m.metrics+"/metrics", ""); err == nil && code == http.StatusOK {
		t.Errorf("metrics are served over plain HTTP, too")
	}
	plain := start(t, admin(t), nil, "--metrics-secure=false")
	plain.plain = true
	plain.awaitMetrics(t, http.StatusOK)
}

// awaitMetrics waits until /metrics is served, to nobody in particular, with a code.
// It returns whose certificate was shown.
func (m *manager) awaitMetrics(t *testing.T, code int) (served string) {
	t.Helper()
	url := "https://" + m.metrics + "/metrics"
	if m.plain {
		url = "http://" + m.metrics + "/metrics"
	}
	harness.Eventually(t, url, func() error {
		if err := m.Alive(); err != nil {
			return err
		}
		got, body, of, err := get(url, "")
		if err == nil && got != code {
			err = fmt.Errorf("%d, want %d:\n%.300s", got, code, body)
		}
		served = of
		return err
	})
	return served
}

// certificate is a directory as the kubelet makes it of a Secret.
type certificate struct{ dir string }

func newCertificate(t *testing.T) certificate {
	t.Helper()
	c := certificate{t.TempDir()}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// set exchanges certificate and key at once, and removes the old ones.
func (c certificate) set(t *testing.T, host string) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, next := filepath.Join(c.dir, "..data"), filepath.Join(c.dir, "..data_tmp")
	old, _ := os.Readlink(data) // none at first
	moment := "..for_" + host
	for _, err := range []error{
		os.Mkdir(filepath.Join(c.dir, moment), 0o700),
		os.WriteFile(filepath.Join(c.dir, moment, "tls.crt"), cert, 0o600),
		os.WriteFile(filepath.Join(c.dir, moment, "tls.key"), key, 0o600),
		os.Symlink(moment, next),
		os.Rename(next, data),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(c.dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}
