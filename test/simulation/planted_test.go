package simulation

import (
	"testing"

	"github.com/phasegate/phasegate/fsm"
)

// A simulation is worth what it finds: each of these defects of the machine, or of the
// engine, must be found within some hundred schedules.
func TestPlantedDefectsAreFound(t *testing.T) {
	const within = 3000
	for name, c := range map[string]struct {
		why string
		// change are texts of the machine file: old, new, old, new.
		change  []string
		planted defect
	}{
		"kept no more": {why: "the copies would be released when the migration is over",
			change: []string{"keeps: [v1Fence, v1Lock, v1Owners, apiService, v3Copies]", "keeps: [v1Fence, v1Lock, v1Owners, apiService]"}},
		"rollback without undo": {why: "a failure would leave v1 locked for ever",
			change: []string{"    - {undo: held}\n    next:\n    - {to: Failed,", "    - {action: UnlockV3}\n    next:\n    - {to: Failed,"}},
		"abort without undo": {why: "a deletion would leave v1 locked for ever",
			change: []string{"    - {undo: held}\n    next:\n    - {to: Deleted, reason: Aborted}", "    - {action: UnlockV3}\n    next:\n    - {to: Deleted, reason: Aborted}"}},
		"deleted while waiting": {why: "P1: a deletion that skips the way back in one phase only",
			change: []string{"timeout: {after: 168h, to: RollingBack, reason: ConflictsUnresolved}\n    onDelete: {to: Aborting}", "timeout: {after: 168h, to: RollingBack, reason: ConflictsUnresolved}\n    onDelete: {to: CleaningUp}"}},
		"deleted past the point of no return": {why: "an abort would delete what others wrote to v3 since",
			change: []string{"onDelete: {hold: 'Converged cannot be rolled back; deletion goes on after Complete'}", "onDelete: {to: Aborting}"}},
		"lock before the fence": {why: "writers are only asked not to write, where they could be kept from it",
			change: []string{"    - {action: BlockV1Writes, with: {prove: false}} # refuses nothing before the lock; API servers load it while objects are copied\n", "", "    - {action: BlockV1Writes} # refuses nothing before the lock; verified here\n", "", "    - {action: DetachV1Owners}\n", "    - {action: BlockV1Writes}\n    - {action: DetachV1Owners}\n"}},
		"v3 opened before it is stored": {why: "P23: v1 could come back after v3 was written by others",
			change: []string{"    - action: Verify\n      if: 'result.conflicts == 0'\n", "    - action: Verify\n      if: 'result.conflicts == 0'\n    - {action: UnlockV3}\n"}},
		"no end of a lock": {why: "looking for conflicts may fail for as long as it likes",
			change: []string{"      if: '!variables.lockExpired' # the deadline of the lock also applies while the step fails\n", ""}},
		"failure that gives up": {why: "after some errors nobody would release anything any more",
			change: []string{"attempts: 150, to: RollingBack}", "attempts: 150, to: Failed}"}},
		"deed before the ledger": {why: "a crash right after the deed: nobody would know that it was done", planted: deedFirst},
		"view trusted":           {why: "what a person or another CRD does to the status would lose the ledger", planted: viewTrusted},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, true, c.change...)
			if m == nil {
				t.Fatal("the changed file says nothing that could be run")
			}
			bad, wrong := search(1, within, []*fsm.Machine{m}, c.planted)
			if wrong == "" {
				t.Fatalf("%s: not found with %d schedules", c.why, within)
			}
			t.Logf("seed %d: %s", bad, wrong)
		})
	}
}
