package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/lint"
)

const (
	migration = "../../phases/datastore-migration.yaml"
	mcpserver = "../../phases/mcpserver.yaml"
)

// mutation is one mistake in a machine that has none.
type mutation struct {
	why, file string
	// old is replaced by new, once; also are more such pairs.
	old, new string
	also     []string
	// code is found in the line with this text; more are findings that follow.
	code, at string
	more     []string
}

// mutations are about what the shipped machines are made of: their programs' names, and what is held; what lint finds of any file
// is in the tests of fsm.
var mutations = map[string]mutation{
	// Names and fields.
	"typo in an action": {why: "the program has no such action", file: migration,
		old: "{action: LockV3}", new: "{action: LokcV3}", code: "PG005", at: "LokcV3"},
	"typo in a Go guard": {why: "the program has no such guard", file: migration,
		old: "guards.onlyMigration", new: "guards.onlyMigrations", code: "PG005", at: "guards.onlyMigrations"},
	"typo in a parameter": {why: "the action would use its default", file: migration,
		old: "with: {quiet: 100ms", new: "with: {quite: 100ms", code: "PG005", at: "quite:"},
	"effect kept that is not there": {why: "it would be released after all", file: migration,
		old: "v1Owners, apiService, v3Copies] #", new: "v1Owners, apiservice, v3Copies] #", code: "PG005", at: "apiservice,"},
	"typo in an output": {why: "the exit would stay closed for ever", file: mcpserver,
		old: "until: 'result.ready ||", new: "until: 'result.raedy ||", code: "PG006", at: "result.raedy"},
	"typo in a field of self": {why: "the schema of the CRD knows it", file: migration,
		old: "self.spec.type ==", new: "self.spec.typ ==", code: "PG006", at: "self.spec.typ =="},

	// The graph.
	"all ways to a phase removed": {why: "code that never runs", file: migration,
		old: "    onDelete: {to: CleaningUp}", new: "    onDelete: {to: Aborting}", code: "PG002", at: "- name: CleaningUp"},
	"onDelete removed": {why: "a deletion must have an answer everywhere", file: migration,
		old: "timeout: {after: 168h, to: RollingBack, reason: ConflictsUnresolved}\n    onDelete: {to: Aborting}\n", new: "timeout: {after: 168h, to: RollingBack, reason: ConflictsUnresolved}\n",
		code: "PG008", at: "- name: WaitingForConflictResolution"},
	"end removed": {why: "the finalizer would never go", file: mcpserver,
		old: "deletion: true, end: true}", new: "deletion: true}", code: "PG003", at: "{name: Deleted,",
		more: []string{"PG009"}},
	"finalizer removed": {why: "the object would be gone before its lock", file: migration,
		old: "  finalizer: migration.projectcalico.org/v1-crd-cleanup\n", new: "", code: "PG017", at: "  for: {apiVersion: migration"},

	// Roles.
	"role removed": {why: "a migration would show no lock", file: migration,
		old: "role: lock, ", new: "", code: "PG022", at: "- {name: v1Fence"},
	"typo in a role": {why: "a migration would show no lock", file: migration,
		old: "role: lock, ", new: "role: lok, ", code: "PG022", at: "lok, acquire", more: []string{"PG022"}},
	"role given twice": {why: "either could be meant", file: migration,
		old: "{name: v1Owners, ", new: "{name: v1Owners, role: lock, ", code: "PG022", at: "lock, acquire: DetachV1Owners"},
	"role of an effect for a phase": {why: "no phase is a lock", file: migration,
		old: "  - name: Migrating\n", new: "  - name: Migrating\n    role: lock\n", code: "PG022", at: "lock\n    description: The locked window"},
	"role of a phase removed": {why: "a server at rest would look Ready", file: mcpserver,
		old: "    role: suspended # not Ready\n", new: "", code: "PG022", at: "- name: Pending\n"},

	// What is held.
	"lock and unlock exchanged": {why: "the ledger would note the unlock as taken", file: migration,
		old: "{name: v1Lock, role: lock, acquire: LockV1, release: UnlockV1}", new: "{name: v1Lock, role: lock, acquire: UnlockV1, release: LockV1}", code: "PG011", at: "- action: LockV1\n"},
	"unlock before lock": {why: "steps in the wrong order", file: migration,
		old: "    - {action: LockV3}\n", new: "    - {action: UnlockV3}\n", code: "PG011", at: "- action: UnlockV3\n"},
	"effect never released": {why: "the deletion skips the way back: the peer's mistake", file: migration,
		old: "    deletion: true\n    steps:\n    - {undo: held}\n    next:\n    - {to: Deleted, reason: Aborted}", new: "    deletion: true\n    steps:\n    - {action: RestoreAPIService}\n    next:\n    - {to: Deleted, reason: Aborted}",
		code: "PG011", at: "{to: Deleted, reason: Aborted}"},
	"rollback that releases nothing": {why: "a failed migration would hold the lock", file: migration,
		old: "  - name: RollingBack # releases the lock and all other effects\n    steps:\n    - {undo: held}\n", new: "  - name: RollingBack\n", code: "PG011", at: "{to: Failed, reason: RolledBack}"},
	"kept no more": {why: "then the way back would be open after the point of no return", file: migration,
		old: "keeps: [v1Fence, v1Lock, v1Owners, apiService, v3Copies]", new: "keeps: [v1Fence, v1Lock, v1Owners, apiService]", code: "PG011", at: "{to: Deleted, reason: CleanedUp}"},
	"point of no return with a way back": {why: "v3 is open for business: nothing may restore v1", file: migration,
		old: "onDelete: {hold: 'Converged cannot be rolled back; deletion goes on after Complete'}", new: "onDelete: {to: Aborting}", code: "PG012", at: "    onDelete: {to: Aborting}\n\n  - name: Complete"},
	"timeout past the point of no return": {why: "late is no reason to tear v3 down", file: migration,
		old: "timeout: {after: 4h, stalled: RolloutStalled}", new: "timeout: {after: 4h, to: RollingBack}", code: "PG012", at: "{after: 4h, to: RollingBack}"},
	"retry that gives up": {why: "Failed would hold the lock", file: migration,
		old: "attempts: 150, to: RollingBack}", new: "attempts: 150, to: Failed}", code: "PG013", at: "attempts: 150, to: Failed}"},
	"rollback that gives up": {why: "somebody would find the lock one day", file: migration,
		old: "timeout: {after: 1h, stalled: RollbackStalled}", new: "timeout: {after: 1h, to: Failed}", code: "PG013", at: "timeout: {after: 1h, to: Failed}"},
	"error that is not undone": {why: "an error in the locked window", file: migration,
		old: "    timeout: {after: 30m, to: RollingBack, reason: MigrationTimeout}\n    onError:\n    - {is: Terminal, to: RollingBack", new: "    timeout: {after: 30m, to: RollingBack, reason: MigrationTimeout}\n    onError:\n    - {is: Terminal, to: Failed",
		code: "PG013", at: "{is: Terminal, to: Failed"},

	// What only looks wrong.
	"timeout removed": {why: "nobody would notice", file: mcpserver,
		old: "    timeout: {after: 5m, stalled: ChildrenStuck}\n", new: "", code: "PG101", at: "- name: Terminating"},
	"hot loop": {why: "as fast as it can, until the timeout", file: mcpserver,
		old: "    - {action: StampPodTemplates}\n", new: "", also: []string{"    - {action: DeletePods, if: 'request.restart.params.strategy == \"immediate\"'}\n", "",
			"    - action: ObserveWorkload\n      until: 'result.ready || result.wanted == 0 || result.missing || generationChanged'\n      poll: 5s\n      message: 'Restarting: waiting for ${result.waitingFor}'\n", "",
			"    steps:\n    next:\n    - {to: Stopped, when: 'result.wanted == 0', reason: ScaledToZero}\n    - {to: Ready, when: 'result.ready && !generationChanged', reason: Restarted} # with the applied spec\n    - {to: Pending, when: 'result.missing', reason: ProxyMissing} # Pending creates it again\n    - {to: Pending, reason: SpecChanged}", "    next:\n    - {to: Restarting, reason: Restarted}"},
		code: "PG103", at: "- {to: Restarting, reason: Restarted}", more: []string{"PG107"}},
}

func TestMutationsOfTheMachines(t *testing.T) {
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			for pair := range slices.Chunk(append([]string{m.old, m.new}, m.also...), 2) {
				if !strings.Contains(text, pair[0]) {
					t.Fatalf("%s does not say %q any more", m.file, pair[0])
				}
				text = strings.Replace(text, pair[0], pair[1], 1)
			}
			var got []string
			at := false
			for _, d := range check(t, lint.File{Name: m.file, Data: []byte(text)}).Findings {
				t.Log(d)
				got = append(got, d.Code)
				at = at || d.Code == m.code && d.Line == lineOf(text, m.at)
			}
			if !at {
				t.Errorf("%s: no %s in line %d", m.why, m.code, lineOf(text, m.at))
			}
			want := append([]string{m.code}, m.more...)
			slices.Sort(want)
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: all findings (-want +got):\n%s", m.why, d)
			}
		})
	}
	if len(mutations) < 25 {
		t.Errorf("only %d mutations", len(mutations))
	}
}

func lineOf(text, part string) int {
	before, _, _ := strings.Cut(text, part)
	return strings.Count(before, "\n") + 1
}

// check is what the command does.
func check(t *testing.T, files ...lint.File) *lint.Report {
	t.Helper()
	report, err := lint.Check(files, lint.Options{Bindings: lint.Known{}.Bindings})
	if err != nil {
		t.Fatal(err)
	}
	return report
}
