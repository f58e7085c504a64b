package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/phases"
)

const machineFile = "datastore-migration.yaml"

// edit changes the text of a machine file.
type edit func(t *testing.T, text string) string

// machine writes a changed copy of the machine and returns its directory, for --phases-dir.
func machine(t *testing.T, edits ...edit) string {
	t.Helper()
	data, err := phases.Files.ReadFile(machineFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, e := range edits {
		text = e(t, text)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, machineFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replace changes a text that occurs exactly once; an edit that missed would test nothing.
func replace(from, to string) edit {
	return func(t *testing.T, text string) string {
		t.Helper()
		if n := strings.Count(text, from); n != 1 {
			t.Fatalf("the machine file has %q %d times, not once", from, n)
		}
		return strings.Replace(text, from, to, 1)
	}
}

func insertAfter(line, more string) edit { return replace(line, line+more) }

// quickly shortens what is long for the sake of real clusters.
var quickly = replace("with: {quiet: 500ms, atMost: 10s}", "with: {quiet: 100ms, atMost: 2s}")

// openGates is the annotation that lists the open gates of a gated machine, each between commas.
const openGates = "e2e.phasegate.dev/open"

// places are the lines of the machine file behind which there is a gate, in the order in which a
// migration comes by. Nowhere is behind the last.
var places = []struct{ gate, line, when string }{
	{"pending", "    description: Check and plan while the cluster works as before. Nothing is locked and nothing is changed here.\n" +
		"    require: # before the finalizer and before any effect\n" +
		"    - {when: 'self.spec.type == \"APIServerToCRDs\"', else: Rejected, reason: UnsupportedType}\n" +
		"    - {when: 'guards.onlyMigration', else: Rejected, reason: AnotherMigrationActive}\n" +
		"    - {when: 'guards.v1CRDsInstalled', else: Rejected, reason: NothingToMigrate}\n" +
		"    steps:\n", "true"},
	{"planned", "    - action: DetectConflicts # sees something only where v3 is served from CRDs already\n", "true"},
	{"begin", "    description: The locked window. Lock v1, let writers finish, cut over to the v3 CRDs, copy, prove that both sides agree.\n    steps:\n", "true"},
	{"locked", "    - {action: LockV1}\n", "true"},
	{"parked", "    - {action: ParkAPIService}\n", "true"},
	{"served", "    - action: AwaitV3Served\n      poll: 200ms\n", "true"},
	{"v3locked", "    - {action: LockV3}\n", "true"},
	{"copied", "    - {action: CopyResources}\n", "true"},
	{"remapped", "    - {action: RemapOwners, if: 'result.ownersWithheld > 0'} # else it reads both sides for nothing; Verify does anyway\n", "true"},
	{"verified", "    - action: Verify\n      if: 'result.conflicts == 0'\n", "result.conflicts == 0"}, // else it is left for another phase
}

const nowhere = ""

func gateStep(gate string) string    { return "gate-" + gate }
func gateMessage(gate string) string { return "at gate " + gate }

// gated is a machine that stops wherever a test wants it to. A gate is an ordinary step, with an action
// that only looks.
func gated(t *testing.T, more ...edit) string {
	t.Helper()
	edits := append([]edit{quickly}, more...)
	for _, p := range places {
		edits = append(edits, insertAfter(p.line, fmt.Sprintf(
			"    - {name: %s, if: '%s', action: ObserveRollout, until: 'self.metadata.?annotations[?\"%s\"].orValue(\"\").contains(\",%s,\")', poll: 1s, message: %q}\n",
			gateStep(p.gate), p.when, openGates, p.gate, gateMessage(p.gate))))
	}
	return machine(t, edits...)
}

// gatesBefore is the annotation's value with which a migration stops at a gate.
func gatesBefore(gate string) string {
	open := ","
	for _, p := range places {
		if p.gate == gate {
			return open
		}
		open += p.gate + ","
	}
	return open
}

// gatesButThose is for a migration that stops at several gates, one after the other.
func gatesButThose(shut ...string) string {
	open := ","
	for _, p := range places {
		if !slices.Contains(shut, p.gate) {
			open += p.gate + ","
		}
	}
	return open
}
