package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// typed runs a line in a shell that has kubectl and the plugin on its PATH, as a user has.
func (w *world) typed(t *testing.T, line string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	bin := filepath.Join(root(t), "bin")
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// said checks what a line printed, and returns it.
func (w *world) said(t *testing.T, line string, code int, parts ...string) string {
	t.Helper()
	out, errs, got := w.typed(t, line)
	t.Logf("$ %s\n%s%s(exit code %d)", line, errs, out, got)
	if got != code {
		t.Fatalf("%s: exit code %d, want %d", line, got, code)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("%s does not say %q", line, part)
		}
	}
	return out
}

// advised is the command that a text advises behind a line that holds a part.
func advised(t *testing.T, text, behind string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, behind) && i+1 < len(lines) {
			return strings.TrimSpace(lines[i+1])
		}
	}
	t.Fatalf("nothing is advised behind %q", behind)
	return ""
}

// The story of a user who has nothing but a terminal: every command that is typed after the
// first is one that the plugin has printed. On the way the migration gets stuck three times.
func TestCommandLine(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects)})
	w.said(t, "kubectl phasegate --help", 0, "kubectl phasegate [command]", "status", "conflicts", "plan")
	w.said(t, "kubectl phasegate status", 2)
	w.said(t, "kubectl phasegate plan", 0, "GlobalNetworkSet", "conflicts cannot be seen yet", "v1 would be locked for about")
	w.obstruct(t)

	// A rule is missing.
	rules := managerRules(t)
	if err := w.Grant(t.Context(), managerAccount, w.without(t, rules, "admissionregistration.k8s.io", "validatingadmissionpolicies", "create")); err != nil {
		t.Fatal(err)
	}
	w.manager(t)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.awaitMessage(t, setup.MigrationName, "may not create validatingadmissionpolicies")
	stuck := w.said(t, "kubectl phasegate status", 0, "‼ [Pending]", "this account may not create validatingadmissionpolicies",
		ofOurs("step Preflight waits: result.blockers.size() == 0"))
	w.said(t, advised(t, stuck, "fix what the message names")+" --as system:nobody", 1)
	if err := w.Grant(t.Context(), managerAccount, rules); err != nil {
		t.Fatal(err)
	}

	// Both sides have an object, and differ.
	w.await(t, setup.MigrationName, waiting)
	stuck = w.said(t, "kubectl phasegate status -w", 4, "‼ [WaitingForConflictResolution]", "GlobalNetworkSet blocklist-0")
	conflicts := advised(t, stuck, "see both sides of each conflict")
	found := w.said(t, conflicts+" --diff", 4, "GlobalNetworkSet blocklist-0", "--- v1", "+  - 192.0.2.99/32",
		"kubectl delete globalnetworksets.v3precopy.projectcalico.org blocklist-0")
	w.said(t, conflicts+" -o jsonpath='{.conflicts[0].fields[*].path}'", 4, "spec.nets")
	w.said(t, advised(t, found, "keep v3:"), 0)
	w.await(t, setup.MigrationName, "Converged")
	w.said(t, conflicts, 0, "No conflicts")

	// Calico's components do not use v3.
	w.awaitMessage(t, setup.MigrationName, "variable not set")
	stuck = w.said(t, "kubectl phasegate status --tree", 0, "● [Converged]", "calico-node (variable not set)", "CALICO_API_GROUP=projectcalico.org/v3", ofOurs("IPPool"))
	w.said(t, advised(t, stuck, "let Calico's components use v3"), 0)
	w.said(t, "kubectl phasegate status "+setup.MigrationName+" -w --timeout 3m", 0, "✓ [Complete]", "kubectl phasegate cleanup "+setup.MigrationName)

	w.dashboardShows(t, "<title>Complete: "+setup.MigrationName)

	// Whoever may get this object sees all of it.
	get := []rbacv1.PolicyRule{{APIGroups: []string{"migration.projectcalico.org"}, Resources: []string{"datastoremigrations"}, ResourceNames: []string{setup.MigrationName}, Verbs: []string{"get"}}}
	if err := w.Grant(t.Context(), "reader", get); err != nil {
		t.Fatal(err)
	}
	w.said(t, "KUBECONFIG="+w.KubeconfigOf("reader")+" kubectl phasegate status "+setup.MigrationName+" -o jsonpath='{.phase} {.progress.done}'", 0, "Complete ")
	w.said(t, "KUBECONFIG="+w.KubeconfigOf("reader")+" kubectl phasegate status", 2)
	w.said(t, "kubectl phasegate status -o name", 0, "datastoremigration.migration.projectcalico.org/"+setup.MigrationName)

	w.said(t, "kubectl __complete phasegate sta", 0, "status\t")
	w.said(t, "kubectl __complete phasegate status ''", 0, setup.MigrationName+"\n")
	w.said(t, "kubectl __complete phasegate conflicts --con", 0, "--context")
}
