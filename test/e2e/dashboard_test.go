package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
)

// dashboardShows starts the dashboard and reads its page until it has a text. What a
// browser makes of it is tried in test/install/dashboard, where there is one.
func (w *world) dashboardShows(t *testing.T, part string) {
	t.Helper()
	path, err := harness.Binary("kubectl-phasegate")
	if err != nil {
		t.Fatal(err)
	}
	address, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p := harness.ProcessForTest(t, harness.Program{
		Name: "dashboard", Path: path, LogDir: t.TempDir(), Args: []string{"dashboard", "--no-open", "--port", port, "--kubeconfig", w.Kubeconfig},
	})
	harness.Eventually(t, "the dashboard to show "+part, func() error {
		if err := p.Alive(); err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(page), part) {
			err = fmt.Errorf("it shows %.300s", page)
		}
		return err
	})
}
