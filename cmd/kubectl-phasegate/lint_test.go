package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	backupBindings = "../../docs/lint/bindings.yaml"
	mcpserver      = "../../phases/mcpserver.yaml"
	gateCRDs       = "../../cmd/kubectl-phasegate/internal/live/testdata/crds"
)

// unguarded is a machine with a warning only.
const unguarded = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: backup}
spec:
  for: {apiVersion: example.org/v1, kind: Backup}
  initial: Copying
  phases:
  - {name: Copying, steps: [{action: CopyFiles}], next: [{to: Done}], onDelete: {immediate: true}}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`

func TestLint(t *testing.T) {
	broken := changed(t, "to: Converged, when", "to: Convreged, when")
	leaking := changed(t, "attempts: 150, to: RollingBack}", "attempts: 150, to: Failed}")
	lost := write(t, "lost.yaml", strings.Replace(unguarded, "{to: Done}", "{to: Dnoe}", 1))
	warned := write(t, "warned.yaml", unguarded)
	renamed := changed(t, "Converged", "RolledOver")
	kinds := write(t, "kinds.yaml", "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: k}\nspec:\n  kinds:\n  - {kind: A, plural: as, scope: World, lock: true}\n  - {kind: B, plural: bs, scope: Cluster, colour: red}\n")
	scopes := write(t, "kinds.yaml", "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: k}\nspec:\n  kinds:\n  - {kind: A, plural: as, scope: World, lock: true}\n")
	other := changed(t, "kind: DatastoreMigration}", "kind: DatastoreMigrations}")
	both := folder(t, map[string]string{"a.yaml": unguarded, "b.yaml": unguarded, "crd.yaml": "apiVersion: v1\nkind: List\n"})
	foreign := folder(t, map[string]string{"crd.yaml": "apiVersion: v1\nkind: List\n"})
	typo := changedGate(t, "self.spec.go", "self.spec.og")
	checkEach(t, map[string]invocation{
		"Shipped":       {why: "without arguments, what is compiled in", out: "2 files, 0 errors, 0 warnings\n"},
		"Directory":     {why: "what we ship has no finding", args: []string{"../../phases", "../../resources/kinds.yaml"}, out: "3 files, 0 errors, 0 warnings\n"},
		"Prove":         {why: "nor has what can happen to it", args: []string{"--prove", "--strict"}, out: "phases/datastore-migration.yaml: explored "},
		"ProveWrong":    {why: "one cause has one finding, with the way", args: []string{"--prove", leaking}, code: exitFindings, out: "2. Migrating → Failed (retry)"},
		"Finding":       {why: "file, line, column, what, what to do", args: []string{lost, "--bindings", backupBindings}, code: exitFindings, out: `lost.yaml:8:63: PG001: phase "Dnoe" does not exist: did you mean Done? phases of this machine: Copying, Done`},
		"Page":          {why: "each finding names its page", args: []string{broken}, code: exitFindings, out: "(docs/lint/PG001.md)\n"},
		"Way":           {why: "how it comes to that", args: []string{leaking}, code: exitFindings, out: "    1. Migrating: step BlockV1Writes takes v1Fence\n    2. Migrating → Failed (retry)\n"},
		"Warning":       {why: "a warning refuses nothing", args: []string{warned, "--bindings", backupBindings}, out: "warned.yaml:8:12: warning: PG101: "},
		"Strict":        {why: "except where somebody says so", args: []string{warned, "--bindings", backupBindings, "--strict"}, code: exitFindings, out: "1 warning\n"},
		"Bindings":      {why: "a machine of another program", args: []string{warned, "--bindings", backupBindings}, out: "0 errors, 1 warning"},
		"NoBindings":    {why: "which this one cannot run", args: []string{warned}, code: exitFindings, out: `PG005: action "`},
		"BindingsWrong": {why: "a check against the wrong file is none", args: []string{mcpserver, "--bindings", mcpserver}, code: exitUsage, err: "--bindings: "},
		"BindingsFile":  {why: "they are checked themselves", args: []string{backupBindings}, out: "1 file, 0 errors"},
		"Against":       {why: "objects may be in the phase that is gone", args: []string{"--against", "../../phases", renamed}, code: exitFindings, out: "PG104: phase Converged of ../../phases/datastore-migration.yaml is gone"},
		"AgainstFile":   {why: "the other way round", args: []string{"--against", renamed, "../../phases/datastore-migration.yaml"}, code: exitFindings, out: "PG104: phase RolledOver of "},
		"AgainstWrong":  {why: "a comparison with nothing finds nothing", args: []string{"--against", kinds}, code: exitUsage, err: "--against: no machine can be read"},
		"Kinds":         {why: "a kind registry has lines too", args: []string{kinds}, code: exitFindings, out: `kinds.yaml:7:43: PG000: unknown field "colour" in spec.kinds[1]`},
		"KindsMeaning":  {why: "also where a value has no meaning", args: []string{scopes}, code: exitFindings, out: `kinds.yaml:6:34: PG000: spec.kinds[0] (A): scope: is "World"`},
		"Kind":          {why: "the actions of this machine are made for one kind", args: []string{other}, code: exitFindings, out: "PG000: machine datastore-migration drives migration.projectcalico.org/v1 DatastoreMigration in this program, not "},
		"TwoOfAName":    {why: "only one of them would run; what is not ours is passed over", args: []string{both, "--bindings", backupBindings}, code: exitFindings, out: "b.yaml:3:18: PG000: machine backup is in " + both + "/a.yaml already"},
		"TwoFiles":      {why: "all of a directory is looked at", args: []string{both, "--bindings", backupBindings}, code: exitFindings, out: "2 files, 1 error, 2 warnings\n"},
		"NothingOfOurs": {why: "an empty check is no check", args: []string{foreign}, code: exitUsage, err: "nothing to check in"},
		"CRD":           {why: "the CRD says what an object looks like", args: []string{typo, "--crd", gateCRDs}, code: exitFindings, out: `PG006: self.spec has no field "og"`},
		"NoCRD":         {why: "without it, nobody knows, and that is said", args: []string{typo}, out: "self is not checked: no CRD of live.phasegate.dev/v1 Gate is known here, give it by --crd FILE or --live\n1 file, 0 errors"},
		"CRDOfOthers":   {why: "a kind that no CRD describes would go unchecked", args: []string{warned, "--crd", gateCRDs, "--bindings", backupBindings}, code: exitUsage, err: "no CRD describes example.org/v1 Backup"},
		"Explain":       {why: "the page, at hand", args: []string{"--explain", "PG011"}, out: "# PG011: an effect is acquired and not released"},
		"ExplainTypo":   {why: "no page", args: []string{"--explain", "PG999"}, code: exitUsage, err: `there is no page for code "PG999"`},
		"Format":        {why: "a mistyped format", args: []string{"-o", "xml"}, code: exitUsage, err: `-o "xml": write one of ["json" "sarif" "text"]`},
		"Missing":       {why: "a mistyped path", args: []string{"no/such.yaml"}, code: exitUsage, err: "no such file"},
		"Live":          {why: "no cluster", args: []string{"--live", "--kubeconfig", "no/such"}, code: exitUsage, err: "--live: find a cluster"},
	}, "lint")
}

func TestLintReadsItsInput(t *testing.T) {
	var out bytes.Buffer
	cmd := command(streams{in: strings.NewReader("kind: Machine\n"), out: &out, err: &out})
	cmd.SetArgs([]string{"lint", "-"})
	if err := cmd.ExecuteContext(t.Context()); exitCode(streams{err: &out}, err) != exitFindings || !strings.Contains(out.String(), "stdin:1:1: PG000: ") {
		t.Errorf("an editor checks what it has not saved: %v\n%s", err, out.String())
	}
}

func TestLintJSON(t *testing.T) {
	file := write(t, "backup.yaml", `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: backup}
spec:
  for: {apiVersion: example.org/v1, kind: Backup}
  initial: Copying
  finalizer: example.org/backup
  effects: [{name: frozen, acquire: Freeze, release: Thaw}]
  phases:
  - name: Copying
    steps: [{action: Freeze}, {action: CopyFiles}, {undo: held}]
    next: [{to: Done}]
    timeout: {after: 1h, to: Failed}
    onDelete: {to: Leaving}
  - {name: Done, terminal: success, onDelete: {to: Leaving}}
  - {name: Failed, terminal: failure, onDelete: {to: Leaving}}
  - {name: Leaving, deletion: true, steps: [{undo: held}], next: [{to: Deleted}], timeout: {after: 1h, stalled: NotThawed}}
  - {name: Deleted, deletion: true, end: true}
`)
	var got map[string]any
	if err := json.Unmarshal([]byte(perform(t, "lint", "-o", "json", "--bindings", backupBindings, file).out), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"files": 1.0, "errors": 1.0, "warnings": 0.0,
		"findings": []any{map[string]any{
			"code": "PG013", "severity": "error", "file": file, "line": 13.0, "column": 30.0, "path": "spec.phases[0].timeout.to",
			"message": "Copying gives up here while frozen may be held, and from Failed on nothing is released",
			"fix":     "lead to a phase that releases it and never gives up",
			"trace":   []any{"Copying: step Freeze takes frozen", "Copying → Failed (timeout)"},
		}},
		"unchecked": []any{map[string]any{"file": file, "for": map[string]any{"apiVersion": "example.org/v1", "kind": "Backup"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("programs rely on these fields (-want +got):\n%s", d)
	}
	clean := perform(t, "lint", "-o", "json").out
	if !strings.Contains(clean, `"findings": []`) {
		t.Errorf("no findings are an empty list, not null:\n%s", clean)
	}
}

func TestActions(t *testing.T) {
	checkEach(t, map[string]invocation{
		"BuiltIn":  {why: "what every machine has", out: "Apply\n    Creates an object"},
		"Own":      {why: "what only this machine has", args: []string{shipped}, out: "    result.ownersWithheld: int\n"},
		"Guards":   {why: "guards too", args: []string{shipped}, out: "guards.onlyMigration\n    No other DatastoreMigration is active.\n"},
		"Required": {why: "what must be given", args: []string{}, out: "with.manifest: object, required: "},
		"JSON":     {why: "for programs", args: []string{shipped, "-o", "json"}, out: `"kind":"Bindings"`},
		"Unknown":  {why: "no such machine", args: []string{"nosuch"}, code: exitUsage, err: "machine nosuch has no actions of its own: name one of datastore-migration"},
		"Format":   {why: "a mistyped format", args: []string{"-o", "xml"}, code: exitUsage, err: `-o "xml"`},
	}, "actions")
	printed := write(t, "bindings.yaml", perform(t, "actions", "-o", "yaml").out)
	if got := perform(t, "lint", "--bindings", printed, changedGate(t)); got.code != 0 {
		t.Errorf("what is printed is what --bindings reads: %s%s", got.out, got.err)
	}
}
