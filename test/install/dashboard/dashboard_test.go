// Package dashboard opens the dashboard in a real browser while a migration runs on a
// real control plane.
package dashboard

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	objects = 240
	frozen  = 12 * time.Second // longer than an answer may take to be missed
)

// phase is the element that shows it, heard what a screen reader says.
const phase, heard = "p.phase", "#say"

// leftover is in v3 before the migration, with other content than v1 has.
func leftover(version string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"203.0.113.99/32"}}}}
	obj.SetAPIVersion(resources.V3Group + "/" + version)
	obj.SetKind("GlobalNetworkSet")
	obj.SetName("blocklist-0")
	return obj
}

func TestDashboardInABrowser(t *testing.T) {
	chromium(t)
	s := setup.ForTest(t, setup.Options{
		Cluster: harness.Options{Own: true}, // a server of it is stopped for a while
		Objects: fixture.Demo(1, objects),
		BeforeStandIn: func(ctx context.Context, s *setup.Setup) error {
			return s.Client.Create(ctx, leftover("v3"))
		},
	})
	program, url := serve(t, s)
	b := open(t)
	b.call(t, "Page.navigate", map[string]any{"url": url}, nil)
	b.await(t, "#link", "Live")
	b.await(t, "main", "There is no DatastoreMigration")
	b.evaluate(t, "window.neverReloaded = true; document.getElementById('main').focus()", nil)

	if _, err := s.StartManager(); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	b.await(t, phase, "WaitingForConflictResolution")
	b.await(t, heard, "v1-to-v3 is in phase WaitingForConflictResolution")
	b.await(t, "#m0-conflicts", "GlobalNetworkSet blocklist-0")
	b.await(t, "svg .here title", "WaitingForConflictResolution")
	b.accessible(t)
	b.picture(t, "conflict", "dark")
	b.picture(t, "conflict", "light")

	// v1 is right: what is in v3 goes, by the version under which it can be reached now.
	if err := s.Client.Delete(t.Context(), leftover(migrationv1.SideDoorVersion)); err != nil {
		t.Fatal(err)
	}
	b.await(t, phase, "Converged")
	b.picture(t, "converged", "dark")
	b.picture(t, "converged", "light")
	if err := fixture.SwitchComponents(t.Context(), s.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	b.await(t, phase, "Complete")
	b.await(t, "#m0-history", "RolledOut")
	b.accessible(t)
	b.picture(t, "complete", "light")

	api, err := s.Server(harness.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	thawed := make(chan error, 1)
	go func() { thawed <- api.Freeze(frozen) }()
	b.await(t, "#cluster", "Stale: the API server does not answer")
	if err := <-thawed; err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the page to be fresh again", func() error {
		if text := b.text(t, "#cluster"); strings.Contains(text, "Stale") {
			return fmt.Errorf("it says %s", text)
		}
		return nil
	})
	b.unmoved(t, url)

	if err := program.Stop(10 * time.Second); err != nil {
		t.Errorf("Ctrl-C is how it is ended: %v", err)
	}
	b.await(t, "#link", "Stale: kubectl phasegate dashboard does not answer")
	if got := b.text(t, phase); !strings.Contains(got, "Complete") {
		t.Errorf("what is known is kept on the page; it says %q", got)
	}
}

// serve starts the command and answers the address that it prints.
func serve(t *testing.T, s *setup.Setup) (*harness.Process, string) {
	t.Helper()
	path, err := harness.Binary("kubectl-phasegate")
	if err != nil {
		t.Fatal(err)
	}
	p := harness.ProcessForTest(t, harness.Program{
		Name: "dashboard", Path: path, LogDir: t.TempDir(), Args: []string{"dashboard", "--no-open", "--kubeconfig", s.Kubeconfig},
	})
	url := ""
	harness.Eventually(t, "the dashboard's address", func() error {
		if err := p.Alive(); err != nil {
			return err
		}
		for line := range strings.Lines(p.Tail(10)) {
			if strings.HasPrefix(line, "http://127.0.0.1:") {
				url = strings.TrimSpace(line)
				return nil
			}
		}
		return fmt.Errorf("it said %q", p.Tail(10))
	})
	return p, url
}

// unmoved: the page was never loaded again, asked nobody else, and its policy was
// never broken.
func (b *browser) unmoved(t *testing.T, url string) {
	t.Helper()
	var same bool
	if b.evaluate(t, "window.neverReloaded === true", &same); !same {
		t.Error("the page was loaded again")
	}
	for _, asked := range b.asked {
		if !strings.HasPrefix(asked, url) {
			t.Errorf("a request left the dashboard: %s", asked)
		}
	}
	if len(b.asked) < 4 {
		t.Errorf("only %q were asked for: are requests still seen?", b.asked)
	}
	for _, text := range b.complaints {
		t.Errorf("the browser complains: %s", text)
	}
}

// accessible asks the browser for what a screen reader is given; and axe-core, where
// AXE is the path of its axe.min.js.
func (b *browser) accessible(t *testing.T) {
	t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    struct {
				Value string `json:"value"`
			} `json:"role"`
			Name struct {
				Value string `json:"value"`
			} `json:"name"`
		} `json:"nodes"`
	}
	b.call(t, "Accessibility.getFullAXTree", nil, &tree)
	count := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		count[n.Role.Value]++
		for _, named := range []string{"region", "progressindicator", "image", "heading", "list"} {
			if n.Role.Value == named && n.Name.Value == "" && named != "list" {
				t.Errorf("a %s has no name", named)
			}
		}
	}
	for _, role := range []string{"banner", "main", "contentinfo", "heading", "region", "status", "image", "table", "list"} {
		if count[role] == 0 {
			t.Errorf("the page has no %s: %v", role, count)
		}
	}
	if path := os.Getenv("AXE"); path != "" {
		b.axe(t, path)
	}
}

func (b *browser) axe(t *testing.T, path string) {
	t.Helper()
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.evaluate(t, string(script)+"; true", nil)
	for _, scheme := range []string{"light", "dark"} {
		b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		var found []string
		b.evaluate(t, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.map(n => n.html.slice(0, 200) + " " + (n.failureSummary || "")).join("\n")))`, &found)
		for _, text := range found {
			t.Errorf("axe-core, %s: %s", scheme, text)
		}
	}
}
