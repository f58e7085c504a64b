package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnPath(t *testing.T) {
	pinned, err := exec.Command("go", "list", "-C", "../..", "-m", "-f", "{{.Version}}", "go.etcd.io/etcd/server/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	number := strings.TrimPrefix(strings.TrimSpace(string(pinned)), "v")
	tests := map[string]struct {
		says  string
		taken bool
		why   string
	}{
		"pinned":         {"etcd Version: " + number + "\nGit SHA: Not provided\n", true, "it need not be built"},
		"pinned, with v": {"v" + number + "\n", true, "etcd has no v, Kubernetes has one"},
		"another":        {"etcd Version: 3.4.0\n", false, "another version is another program"},
		"its own build":  {"etcd Version: " + number + "+vendor1\n", false, "a vendor's changes are not known"},
		"nothing":        {"", false, "what does not say is not known"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir, path := t.TempDir(), t.TempDir()
			program := filepath.Join(dir, "etcd")
			// #nosec G306 -- a program
			if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nprintf '%%b' %q\n", tc.says), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(path, "etcd")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", path+string(os.PathListSeparator)+os.Getenv("PATH"))
			want := ""
			if tc.taken {
				want = program
			}
			if got := (Options{Source: "../.."}).onPath(t.Context(), programs[0]); got != want {
				t.Errorf("found %q, want %q: %s", got, want, tc.why)
			}
		})
	}
}
