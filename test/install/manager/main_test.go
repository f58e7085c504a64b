// Package manager tests what bin/manager is as a program, whatever its controllers
// do: its probes, its metrics, how it shares a lease and how it ends.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// account is a manager in a pod; it may do everything.
	account = "manager"
	// grace is within what a manager ends: its --shutdown-timeout.
	grace = 20 * time.Second
)

// shared is the API server of all tests here.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

func startServer() (*harness.Cluster, error) {
	ctx := context.Background()
	c, err := harness.Start(ctx, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	if err != nil {
		return nil, err
	}
	ours, err := crds.ReadDir(filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds"))
	if err == nil {
		err = crds.Install(ctx, c.Config, crds.Set{CRDs: ours})
	}
	if err == nil {
		err = c.Grant(ctx, account, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// manager is a process of bin/manager with probes and metrics.
type manager struct {
	*harness.Process
	probes, metrics string
	// plain tells that metrics are served without TLS.
	plain bool
}

// start runs bin/manager until the end of the test, with more arguments.
func start(t *testing.T, kubeconfig string, env []string, args ...string) *manager {
	t.Helper()
	path, err := harness.Binary("manager")
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{}
	for _, address := range []*string{&m.probes, &m.metrics} {
		if *address, err = harness.FreeAddress(); err != nil {
			t.Fatal(err)
		}
	}
	m.Process = harness.ProcessForTest(t, harness.Program{
		Name: filepath.Base(m.probes), Path: path, LogDir: t.TempDir(), Env: env,
		Args: append([]string{"--kubeconfig", kubeconfig, "--health-probe-bind-address", m.probes, "--metrics-bind-address", m.metrics}, args...),
	})
	return m
}

// admin is the kubeconfig of the cluster's administrator.
func admin(t *testing.T) string { return shared.Cluster(t).Kubeconfig }

// get asks a server of the manager, each time over a connection of its own.
func get(url, token string) (code int, body string, cert string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: harness.Patience}).Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if resp.TLS != nil {
		cert = resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	return resp.StatusCode, string(data), cert, err
}

// awaitProbe waits until a probe answers with a code and, in this order, lines that match.
func (m *manager) awaitProbe(t *testing.T, path string, code int, lines ...string) {
	t.Helper()
	want := regexp.MustCompile(`(?s)^` + strings.Join(lines, `.*\n`) + `.*$`)
	harness.Eventually(t, fmt.Sprintf("%s with %d and %v", path, code, lines), func() error {
		if err := m.Alive(); err != nil {
			return err
		}
		got, body, _, err := get("http://"+m.probes+path, "")
		if err == nil && (got != code || !want.MatchString(body)) {
			err = fmt.Errorf("%d:\n%s", got, body)
		}
		return err
	})
}

// awaitLog waits until the manager has logged something.
func (m *manager) awaitLog(t *testing.T, what string) {
	t.Helper()
	harness.Eventually(t, "the log to tell "+what, func() error {
		text, err := os.ReadFile(m.Log)
		if err == nil && !strings.Contains(string(text), what) {
			err = errors.New("it does not")
		}
		return err
	})
}

// tokenOf is the token of a service account that is granted the rules.
func tokenOf(t *testing.T, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	c := shared.Cluster(t)
	if err := c.Grant(t.Context(), name, rules); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return config.BearerToken
}
