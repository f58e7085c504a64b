package e2e

import (
	"strings"
	"testing"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Somebody takes a v1 CRD away, with all its objects, when they are copied: the copies are the last of them.
// Neither the migration nor its abort deletes them, until a person says so; v1 is open meanwhile.
func TestLastCopiesOutliveTheirMigration(t *testing.T) {
	const sets, says = "globalnetworksets", "the copies in v3 may be the last of its objects"
	w := own(t, setup.Options{Objects: fixture.Demo(7, objects)})
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "begin")
	w.awaitGate(t, setup.MigrationName, "begin")
	copies := func() []string {
		return strings.Fields(w.kubectl(t, "get", sets+"."+migrationv1.SideDoorVersion+"."+resources.V3Group, "-o", "name"))
	}
	before := len(copies())
	if before == 0 {
		t.Fatal("nothing was copied")
	}
	w.dropCRD(t, sets+"."+resources.V1Group)

	w.askRemoval(t, setup.MigrationName)
	w.awaitMessage(t, setup.MigrationName, says)
	if after := len(copies()); after != before {
		t.Errorf("%d of %d copies are left", after, before)
	}
	if !w.ready(t, v1) {
		t.Error("v1 is closed while the abort waits for a person")
	}
	w.waive(t, setup.MigrationName, copier.WaiveLastCopies)
	w.awaitGone(t, setup.MigrationName)
	if stored := w.stored(t); len(stored) != 0 {
		t.Errorf("in v3 there still is %v", stored)
	}
}
