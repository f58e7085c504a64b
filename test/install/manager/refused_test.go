package manager

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/phases"
)

// A manager that is started with a refused file goes on: that of another process is nothing
// to it; and what is under way by its own waits for the file.
func TestStartWithARefusedFile(t *testing.T) {
	c := shared.Cluster(t)
	state := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "phasegate.dev/v1alpha1", "kind": "MachineState",
		"metadata": map[string]any{"name": "mcpserver.started", "labels": map[string]any{"phasegate.dev/machine": "mcpserver"}},
		"spec": map[string]any{"machine": "mcpserver", "object": map[string]any{
			"apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "namespace": "default", "name": "fetch", "uid": "started"}},
		"status": map[string]any{"phase": "Pending", "revision": "sha256:0123456789abcdef"},
	}}
	if err := c.Client.Create(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Client.Delete(t.Context(), state); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}()
	good, err := phases.Files.ReadFile("mcpserver.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(string(good), "initial: Pending", "initial: Nowhere", 1))

	other := start(t, admin(t), nil, "--controllers=datastoremigration", "--phases-dir", dir)
	other.awaitProbe(t, "/readyz?verbose", http.StatusOK, `\[\+\]machines ok: datastore-migration in force; refused: .*mine\.yaml.*this process does not run it`, `\[\+\]datastoremigration ok: runs for CRD`)
	own := start(t, admin(t), nil, "--controllers=mcpserver", "--phases-dir", dir)
	own.awaitProbe(t, "/readyz?verbose", http.StatusServiceUnavailable, `\[-\]machines failed: nothing drives the objects of machine mcpserver: MCPServer default/fetch cannot go on with the compiled-in one: it is under way in phase Pending`)
	own.awaitProbe(t, "/healthz", http.StatusOK)
	write(string(good))
	own.awaitProbe(t, "/readyz?verbose", http.StatusOK, `\[\+\]machines ok: datastore-migration, mcpserver in force`, `\[\+\]mcpserver ok: runs for CRD`)
}
