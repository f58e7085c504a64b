package e2e

import (
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A manager that may send one request at a time is slow. It must not be stuck: none
// of its requests may hold its turn while it waits for another one.
func TestOneRequestAtATime(t *testing.T) {
	w := pristine(t)
	before := w.content(t)
	w.manager(t, "--phases-dir", gated(t), "--max-requests-in-flight=1")
	w.start(t, setup.MigrationName, "verified")
	if _, err := w.AwaitPhase(t.Context(), setup.MigrationName, "Migrating", 2*harness.Patience); err != nil {
		t.Fatal(err)
	}
	w.awaitGate(t, setup.MigrationName, "verified")
	assertSameContent(t, before, w.content(t))
	w.remove(t, setup.MigrationName)
}
