package e2e

import (
	"os"
	"testing"

	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Calico 3.32 is the oldest release with v3 CRDs. There CalicoNodeStatus has no status subresource: a write of it is
// answered with 404, for which the object would be read again and again.
func TestOlderCalico(t *testing.T) {
	dir := os.Getenv(crds.EnvDir) + "-3.32"
	if _, err := os.Stat(dir); os.Getenv(crds.EnvDir) == "" || err != nil {
		t.Skipf("not run: there are no CRDs of Calico 3.32 in %s, beside %s", dir, crds.EnvDir)
	}
	w := own(t, setup.Options{CRDs: dir, Objects: fixture.Demo(2, 100)})
	before := w.content(t)
	w.manager(t)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.await(t, setup.MigrationName, "Converged")
	assertSameContent(t, before, w.content(t))
	w.do(t, fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace))
	w.await(t, setup.MigrationName, "Complete")
	w.askRemoval(t, setup.MigrationName)
	w.awaitGone(t, setup.MigrationName)
	assertSameContent(t, before, w.content(t))
}
