package e2e

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/support/setup"
)

// Deleting the migration before the point of no return releases everything, wherever it stands. This has a process, the rights of
// the chart, and a place of each sort; test/faults/migration.TestAbort has each write.
func TestAbort(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	cases := map[string]struct {
		why, gate string
		held      []string
	}{
		"pending, before the checks": {why: "nothing was done: only the finalizer goes", gate: "pending"},
		"pending, copied ahead":      {why: "the copies are deleted through the side door, while the aggregated API server serves v3", gate: "ahead", held: held("v3Copies")},
		"v1 locked":                  {why: "the lock must never outlive the migration", gate: "locked", held: held("v1Lock")},
		"APIService parked":          {why: "the saved APIService comes back, with every label and annotation", gate: "parked", held: held("apiService")},
		"copied":                     {why: "every copy goes", gate: "copied", held: held("apiService")},
		"verified":                   {why: "the last moment before the point of no return", gate: "verified", held: held("apiService")},
	}
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			w.start(t, setup.MigrationName, tc.gate)
			dm := w.awaitGate(t, setup.MigrationName, tc.gate)
			if diff := cmp.Diff(tc.held, dm.Status.Machine.HeldNames()); diff != "" {
				t.Errorf("what it holds (-want +got), %s:\n%s", tc.why, diff)
			}
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
}

// held is all that is held once the effect is taken, in the order of the machine.
func held(last string) []string {
	all := []string{"v1Fence", "sideDoor", "v3Lock", "v3Copies", "dependents", "v1Lock", "v1Owners", "apiService"}
	return all[:slices.Index(all, last)+1]
}
