package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/setup"
)

// docs/extend/approval-gate.md, with the annotation that a tool for GitOps would write.
func TestApprovalGate(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t, with("approval-gate/gate.diff")))
	w.start(t, setup.MigrationName, "locked")
	dm := w.awaitMessage(t, setup.MigrationName, "kubectl phasegate approve "+setup.MigrationName)
	assertAtRest(t, dm, "Reconciling")
	// On Calico's CRD, which knows neither, the message has said it.
	if !onPeersCRDs && (dm.Status.Phase != "AwaitingApproval" || len(dm.Status.Machine.Blocked) != 1 || dm.Status.Machine.Blocked[0].To != "Migrating") {
		t.Errorf("phase %s, blocked %+v: the closed exit is named", dm.Status.Phase, dm.Status.Machine.Blocked)
	}
	w.assertNothingLocked(t, dm) // before the approval
	w.annotate(t, setup.MigrationName, map[string]string{"phasegate.dev/approve": "change-4711"})
	dm = w.awaitGate(t, setup.MigrationName, "locked")
	if diff := cmp.Diff([]string{"Pending", "AwaitingApproval", "Migrating"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if got := dm.Annotations["phasegate.dev/approved"]; got != "change-4711" {
		t.Errorf("phasegate.dev/approved is %q: it shows which approval was acted on", got)
	}
	w.remove(t, setup.MigrationName)
}

// A poll interval that is changed in a copy of the machine is the one that is kept: it looks again by itself.
func TestChangedPollInterval(t *testing.T) {
	w := pristine(t)
	inTurn(t, "short", func(t *testing.T) {
		t.Cleanup(func() { w.restoreCRDs(t) })
		w.dropCRD(t, "ippools.projectcalico.org")
		w.manager(t, "--phases-dir", gated(t, inStep("Pending", "Preflight", func(s *v1alpha1.Step) { s.Poll = "200ms" })))
		w.start(t, setup.MigrationName, "begin")
		w.awaitMessage(t, setup.MigrationName, "CRD ippools.projectcalico.org is not installed")
		w.restoreCRDs(t)
		w.awaitGate(t, setup.MigrationName, "begin")
		w.remove(t, setup.MigrationName)
	})
}

// A manager that is started wrongly says all that is wrong, on stderr, and does not start.
func TestRefusedAtStart(t *testing.T) {
	broken := machine(t,
		func(_ *testing.T, spec *v1alpha1.MachineSpec) { spec.Initial = "Pendign" },
		inStep("Migrating", "RemapOwners", func(s *v1alpha1.Step) { s.If = "result.conflict =" }))
	unbound := machine(t,
		inStep("Migrating", "Drain", func(s *v1alpha1.Step) { s.Action = "Drian" }),
		inPhase("Pending", func(_ *testing.T, p *v1alpha1.Phase) { p.Require[1].When = "guards.onlyMigraton" }))
	kinds := filepath.Join(t.TempDir(), "kinds.yaml")
	if err := os.WriteFile(kinds, []byte("apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: calico}\nspec:\n  kinds:\n  - {kind: Tier, plural: tiers, scope: Galaxy}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		why  string
		args []string
		says []string
	}{
		"broken machine": {"every finding, with its place", []string{"--phases-dir", broken},
			[]string{`datastore-migration\.yaml:\d+:\d+: PG001: .*Pendign`, `datastore-migration\.yaml:\d+:\d+: PG006: Syntax error`}},
		"names that mean nothing": {"every one of them", []string{"--phases-dir", unbound},
			[]string{`datastore-migration\.yaml:\d+:\d+: PG\d+: .*Drian`, `datastore-migration\.yaml:\d+:\d+: PG\d+: .*onlyMigraton`}},
		"no such directory":  {"a typo must not mean the built-in machine", []string{"--phases-dir", "/nonexistent"}, []string{"--phases-dir", "/nonexistent"}},
		"unknown controller": {"what there is instead", []string{"--controllers", "datastoremigraton"}, []string{"datastoremigraton", "datastoremigration"}},
		"broken registry":    {"with its place", []string{"--kinds-file", kinds}, []string{regexp.QuoteMeta(kinds), `spec\.kinds\[0\] \(Tier\).*Galaxy`}},
		"unknown flag":       {"not ignored", []string{"--phase-dir", "x"}, []string{"--phase-dir"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, said := exits(t, append(tc.args, "--kubeconfig", "/nonexistent/kubeconfig")...)
			if code != 1 {
				t.Errorf("exit code %d, want 1: %s", code, tc.why)
			}
			for _, part := range tc.says {
				if !regexp.MustCompile(part).MatchString(said) {
					t.Errorf("it does not say %s:\n%s", part, said)
				}
			}
			// With a machine file that is refused the manager starts all the same, and drives the others.
			if !strings.Contains(strings.Join(tc.args, " "), "/nonexistent") && slices.Contains(tc.args, "--phases-dir") {
				return
			}
			if strings.Contains(said, "kubeconfig") {
				t.Errorf("files are checked before a cluster is looked for:\n%s", said)
			}
		})
	}
}
