package manager

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/test/support/harness"
)

// A standby is ready, too, and says that it is one. It takes over as soon as the
// leader has ended, which gives the lease up, and not a lease duration later.
func TestLeaderAndStandby(t *testing.T) {
	args := []string{"--leader-elect", "--leader-elect-namespace=default", "--leader-elect-lease-name=probes", "--controllers=datastoremigration,custom",
		"--leader-elect-lease-duration=2m", "--leader-elect-renew-deadline=1m", "--leader-elect-retry-period=500ms"}
	leader := start(t, admin(t), nil, args...)
	leads := []string{
		`\[\+\]machines ok: datastore-migration, mcpserver in force`,
		`\[\+\]api ok: v1\.`,
		`\[\+\]leader ok: this process leads`,
		`\[\+\]datastoremigration ok: runs for CRD datastoremigrations\.migration\.projectcalico\.org`,
		`\[\+\]custom ok: no machine is driven from its file alone`,
	}
	leader.awaitProbe(t, "/readyz?verbose", http.StatusOK, leads...)
	leader.awaitProbe(t, "/healthz?verbose", http.StatusOK, `\[\+\]machines ok\n\[\+\]leader-election ok\n`)
	standby := start(t, admin(t), nil, args...)
	standby.awaitProbe(t, "/readyz?verbose", http.StatusOK, `\[\+\]machines ok`, `\[\+\]api ok`, `\[\+\]leader ok: standby`, `\[\+\]datastoremigration ok: not started`)
	lease := &coordinationv1.Lease{}
	if err := shared.Cluster(t).Client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "probes"}, lease); err != nil {
		t.Errorf("the lease has another name: %v", err)
	}

	began := time.Now()
	if err := leader.Stop(grace); err != nil {
		t.Errorf("the leader ended with %v", err)
	}
	standby.awaitProbe(t, "/readyz?verbose", http.StatusOK, leads...)
	t.Logf("the standby took over %s after the leader was asked to end", time.Since(began).Round(time.Millisecond))
	if err := standby.Stop(grace); err != nil {
		t.Errorf("the standby ended with %v", err)
	}
}

// A manager that cannot reach the API server waits for it: it lives, is not ready,
// and says why.
func TestAPIServerIsAway(t *testing.T) {
	nowhere, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(admin(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + nowhere
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	m := start(t, kubeconfig, nil, "--log-format=text")
	m.awaitProbe(t, "/readyz", http.StatusServiceUnavailable, `\[\+\]machines ok`, `\[-\]api failed: the API server does not answer: .*connection refused`, `\[\+\]leader ok`)
	m.awaitProbe(t, "/healthz", http.StatusOK, "ok")
	if err := m.Stop(grace); err != nil {
		t.Errorf("ended with %v", err)
	}
	text, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "machine in force\t{\"machine\": \"mcpserver\"") {
		t.Errorf("--log-format=text is not for people:\n%s", text)
	}
}
