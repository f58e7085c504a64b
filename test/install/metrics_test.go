package install

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/test/support/harness"
)

// scrape: who has a token and the right reads the metrics, nobody else does.
func scrape(t *testing.T, w *world) {
	cases := map[string]struct {
		why, account string
		code         int
	}{
		"nobody":     {"there is no token", "", http.StatusUnauthorized},
		"somebody":   {"a token is not a right", "default", http.StatusForbidden},
		"prometheus": {"it is bound to the role of the chart", "prometheus", http.StatusOK},
	}
	for _, controller := range []string{migrating, serving} {
		pod := w.awaitReady(t, controller, 1)[0]
		for name, c := range cases {
			code, text, err := w.metrics(t, pod, w.scraper(t, c.account))
			if err != nil || code != c.code || (code == http.StatusOK && !strings.Contains(text, "phasegate_machine_info{")) {
				t.Errorf("%s, %s: %d, want %d: %s (%v)\n%.300s", controller, name, code, c.code, c.why, err, text)
			}
		}
	}
}

// scraper is a token of an account of the namespace, of which prometheus may read metrics.
func (w *world) scraper(t *testing.T, account string) string {
	t.Helper()
	if account == "" {
		return ""
	}
	if w.tokens[account] == "" {
		w.kubectl(t, "apply", "-f", "testdata/prometheus.yaml")
		w.tokens[account] = strings.TrimSpace(w.kubectl(t, "create", "token", account, "-n", system))
	}
	return w.tokens[account]
}

func (w *world) metrics(t *testing.T, pod types.NamespacedName, token string) (int, string, error) {
	t.Helper()
	url := "https://" + net.JoinHostPort(w.pods.Host(pod), "8443") + "/metrics"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is the manager's own making, as long as the chart is given none.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // read to its end
	return answer.StatusCode, string(text), err
}

// leads is nil if the manager of a pod says that it is the one that works.
func (w *world) leads(t *testing.T, pod types.NamespacedName) error {
	t.Helper()
	code, text, err := w.metrics(t, pod, w.scraper(t, "prometheus"))
	if err != nil {
		return err
	}
	want := fmt.Sprintf(`leader_election_master_status{name="%s"} 1`, account(migrating))
	if !strings.Contains(text, want) {
		return fmt.Errorf("metrics (%d) do not say %s", code, want)
	}
	return nil
}

// leaderOf is the one that works, once there is one: after the lease was given up, the next try to get it
// may take a retry period.
func (w *world) leaderOf(t *testing.T, pods []types.NamespacedName) types.NamespacedName {
	t.Helper()
	var leader types.NamespacedName
	harness.Eventually(t, fmt.Sprintf("one of %v to lead", pods), func() error {
		var errs []error
		for _, leader = range pods {
			err := w.leads(t, leader)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return leader
}
