package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
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
