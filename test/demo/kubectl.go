package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/phasegate/phasegate/test/support/harness"
)

// kubectl runs the kubectl that was built with the control plane, and shows the
// command as a reader could type it.
func (s *story) kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := harness.Binary(filepath.Join("tools", "kubectl"))
	if err != nil {
		return "", err
	}
	s.out.line("$ kubectl %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", s.scene.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
