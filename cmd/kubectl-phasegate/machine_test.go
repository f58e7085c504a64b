package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1/schema"
	"github.com/phasegate/phasegate/cmd/internal/release"
)

// outcome is what a user sees of a command.
type outcome struct {
	out, err string
	code     int
}

func perform(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	s := streams{in: strings.NewReader(""), out: &out, err: &errs}
	cmd := command(s)
	cmd.SetArgs(args)
	code := 0
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		code = exitCode(s, err)
	}
	return outcome{out: out.String(), err: errs.String(), code: code}
}

// invocation is a command line, and what a user must see of it; out and err are parts of what is printed.
type invocation struct {
	why      string
	args     []string
	code     int
	out, err string
}

// check runs args instead of its own, which are not all that the test has to say.
func (i invocation) check(t *testing.T, args ...string) outcome {
	t.Helper()
	got := perform(t, args...)
	if got.code != i.code || !strings.Contains(got.out, i.out) || !strings.Contains(got.err, i.err) {
		t.Errorf("%q: %s: exit code %d, want %d; out must hold %q:\n%s\nerr must hold %q:\n%s", i.args, i.why, got.code, i.code, i.out, got.out, i.err, got.err)
	}
	return got
}

// checkEach runs each case behind what all have in common.
func checkEach(t *testing.T, cases map[string]invocation, common ...string) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { c.check(t, slices.Concat(common, c.args)...) })
	}
}

// folder holds files by name.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// write makes a file for a test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	return filepath.Join(folder(t, map[string]string{name: text}), name)
}

// changed is the shipped machine after replacements, old and new by turns.
func changed(t *testing.T, replace ...string) string {
	t.Helper()
	data, err := os.ReadFile("../../phases/datastore-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(replace...).Replace(string(data))
	if text == string(data) {
		t.Fatal("nothing was replaced")
	}
	return write(t, "changed.yaml", text)
}

const (
	shipped = "datastore-migration"
	gates   = "../../cmd/kubectl-phasegate/internal/live/testdata/gate.yaml"
)

func TestMachineCommands(t *testing.T) {
	broken := write(t, "broken.yaml", "kind: Machine\n")
	slower := changed(t, "24h", "25h")
	cut := changed(t, "RollingBack", "Undoing")
	checkEach(t, map[string]invocation{
		"Graph":           {why: "one compiled-in machine of the name", args: []string{"graph", shipped}, out: "datastore-migration drives DatastoreMigration"},
		"GraphFile":       {why: "any file", args: []string{"graph", gates, "-o", "mermaid"}, out: "flowchart TD"},
		"GraphDot":        {why: "for Graphviz", args: []string{"graph", gates, "-o", "dot"}, out: `digraph "gate" {`},
		"GraphFormat":     {why: "a mistyped format", args: []string{"graph", gates, "-o", "png"}, code: exitUsage, err: `-o "png": write one of [ascii dot mermaid svg]`},
		"GraphUnknown":    {why: "neither a file nor a machine", args: []string{"graph", "nosuch"}, code: exitUsage, err: `"nosuch" is neither a file nor a machine that is published or compiled in`},
		"GraphMissing":    {why: "a path is never taken for a name", args: []string{"graph", "no/such.yaml"}, code: exitUsage, err: "no such file"},
		"GraphTwo":        {why: "one machine is drawn", args: []string{"graph", gates, shipped}, code: exitUsage, err: "one argument too many"},
		"GraphBroken":     {why: "a file that is refused has findings", args: []string{"graph", broken}, code: exitFindings, err: "broken.yaml:1:1: PG000"},
		"Explain":         {why: "a phase tells its machine", args: []string{"explain", "Migrating"}, out: "releases apiService, v1Owners, v1Lock, dependents, v3Copies, v3Lock, sideDoor, v1Fence"},
		"ExplainFile":     {why: "of any file, for programs", args: []string{"explain", "Broken", gates, "-o", "json"}, out: `"kubectl phasegate retry gate/NAME"`},
		"ExplainNothing":  {why: "what?", args: []string{"explain"}, code: exitUsage, err: "what? give a MACHINE"},
		"ExplainWhole":    {why: "all of a machine", args: []string{"explain", shipped}, out: "drives DatastoreMigration (migration.projectcalico.org/v1)\n\nThe way on which all goes well\n  Pending → Migrating → Converged → Complete\n"},
		"ExplainAFile":    {why: "all of a file", args: []string{"explain", gates}, out: "What a person can ask for\n  approve, in Closed\n    kubectl phasegate approve gate/NAME"},
		"ExplainAJSON":    {why: "all of a file, for programs", args: []string{"explain", gates, "-o", "json"}, out: `"way": [`},
		"ExplainRefused":  {why: "a file that is refused has findings", args: []string{"explain", broken}, code: exitFindings, err: "broken.yaml:1:1: PG000"},
		"ExplainUnknown":  {why: "a mistyped phase of no machine", args: []string{"explain", "Migratin"}, code: exitUsage, err: `no machine has a phase "Migratin", use one of theirs: datastore-migration has Pending, `},
		"ExplainNotThere": {why: "a mistyped phase of a machine", args: []string{"explain", "Migratin", shipped}, code: exitUsage, err: `has no phase "Migratin"; it has: Pending,`},
		"ExplainFormat":   {why: "a mistyped format", args: []string{"explain", "Migrating", "-o", "yaml"}, code: exitUsage, err: `-o "yaml": write text or json`},
		"ExplainLive":     {why: "an object tells its phase", args: []string{"explain", "Migrating", shipped, "--live", "x"}, code: exitUsage, err: "the phase is that of the object"},
		"DiffSame":        {why: "nothing changed", args: []string{"diff", shipped, shipped}, out: "nothing that matters changed"},
		"DiffHarmless":    {why: "a change that strands nobody", args: []string{"diff", shipped, slower}, out: "timeout.after: 24h → 25h"},
		"DiffStranding":   {why: "scripts must notice", args: []string{"diff", shipped, cut}, code: exitFindings, out: "phase RollingBack is gone"},
		"DiffJSON":        {why: "programs read it", args: []string{"diff", shipped, slower, "-o", "json"}, out: `"timeout.after: 24h → 25h"`},
		"GraphWhich":      {why: "there are two, and --live is no machine", args: []string{"graph", "--live", "mine"}, code: exitUsage, err: "which machine? give a file or one of: datastore-migration, mcpserver"},
		"DiffOne":         {why: "it takes two", args: []string{"diff", shipped}, code: exitUsage, err: "accepts 2 arg(s)"},
		"Completion":      {why: "shells ask for arguments", args: []string{"__complete", "explain", ""}, out: "RollingBack\n"},
		"CompletionFile":  {why: "a machine or a file follows", args: []string{"__complete", "explain", "Pending", ""}, out: shipped},
		"CompletionFlag":  {why: "values of flags too", args: []string{"__complete", "graph", "-o", ""}, out: "mermaid\n"},
		"CompletionAsk":   {why: "requests of the machines", args: []string{"__complete", "approve", "--request", ""}, out: "retry\n"},
		"CompletionCode":  {why: "codes that have a page", args: []string{"__complete", "lint", "--explain=PG10"}, out: "PG104"},
		"CompletionShort": {why: "a short flag", args: []string{"__complete", "lint", "-o=s"}, out: "sarif"},
		"CompletionLong":  {why: "the same by its long name", args: []string{"__complete", "lint", "--output="}, out: "json"},
		"CompletionOwn":   {why: "machines with actions of their own", args: []string{"__complete", "actions", ""}, out: shipped},
		"CompletionKinds": {why: "kinds of files", args: []string{"__complete", "schema", ""}, out: "kindregistry\nmachine\n"},
		"SchemaUnknown":   {why: "what there is instead", args: []string{"schema", "machines"}, code: exitUsage, err: "write one of [kindregistry machine]"},
		"VersionFormat":   {why: "a mistyped format", args: []string{"version", "-o", "yaml"}, code: exitUsage, err: "kubectl-phasegate: -o \"yaml\": write text or json\n"},
	})
}

// What is printed for programs is the text and nothing else.
func TestPrintedWhole(t *testing.T) {
	for name, want := range map[string]string{"version": version + "\n", "schema machine": string(schema.Machine), "schema kindregistry": string(schema.KindRegistry)} {
		if diff := cmp.Diff(outcome{out: want}, perform(t, strings.Fields(name)...), cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var info release.Info
	if err := json.Unmarshal([]byte(perform(t, "version", "-o", "json").out), &info); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(release.Current(), info); diff != "" {
		t.Errorf("a bug report says which program it was (-want +got):\n%s", diff)
	}
}

func TestMachineAndObject(t *testing.T) {
	cases := map[string]struct {
		why   string
		args  []string
		where string
		want  string
	}{
		"Equals":    {why: "--live=NAME, even if it is called like a machine", args: []string{shipped}, where: shipped, want: shipped},
		"Machine":   {why: "MACHINE --live", args: []string{shipped}, where: everywhere, want: everywhere},
		"Both":      {why: "MACHINE --live NAME", args: []string{shipped, "mine"}, where: everywhere, want: "mine"},
		"Namesakes": {why: "the second is the object", args: []string{shipped, shipped}, where: everywhere, want: shipped},
		"None":      {why: "no --live", args: []string{shipped}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, got, err := machineAndObject(t.Context(), streams{}, clusterFlags(&cobra.Command{}), tc.args, tc.where)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{shipped, tc.want}, []string{m.Name(), got}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
