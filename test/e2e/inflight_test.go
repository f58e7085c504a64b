package e2e

import (
	"testing"

	"github.com/phasegate/phasegate/test/scene"
)

// A manager that may send one request at a time is slow. It must not be stuck: none
// of its requests may hold its turn while it waits for another one.
func TestOneRequestAtATime(t *testing.T) {
	w := pristine(t)
	before := w.content(t)
	w.manager(t, "--phases-dir", gated(t), "--max-requests-in-flight=1")
	w.start(t, scene.MigrationName, "verified")
	w.awaitGate(t, scene.MigrationName, "verified")
	assertSameContent(t, before, w.content(t))
	w.remove(t, scene.MigrationName)
}
