package tools

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKey(t *testing.T) {
	keyOf := func(mod, sum, version string, flags ...string) string {
		t.Helper()
		dir := t.TempDir()
		for name, content := range map[string]string{"go.mod": mod, "go.sum": sum} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := key(dir, version, flags)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	base := keyOf("m", "s", "go1.26")
	tests := map[string]struct {
		mod, sum, version string
		flags             []string
		same              bool
		why               string
	}{
		"other clone":      {mod: "m", sum: "s", version: "go1.26", same: true, why: "the directory makes no difference, so a second clone starts at once"},
		"other go.mod":     {mod: "n", sum: "s", version: "go1.26", why: "another version is another program"},
		"other go.sum":     {mod: "m", sum: "t", version: "go1.26", why: "another content is another program"},
		"other go":         {mod: "m", sum: "s", version: "go1.27", why: "another compiler makes another program"},
		"other flags":      {mod: "m", sum: "s", version: "go1.26", flags: []string{"-race"}, why: "a version is stamped by a flag"},
		"moved boundaries": {mod: "mgo.sum 1\ns", sum: "", version: "go1.26", why: "where one file ends belongs to the content"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if same := keyOf(tc.mod, tc.sum, tc.version, tc.flags...) == base; same != tc.same {
				t.Errorf("same key is %v, want %v: %s", same, tc.same, tc.why)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	got, err := Select([]string{"helm"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "fakenodes"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if _, err := Select([]string{"hlem"}); err == nil {
		t.Error("skipped a program that does not exist")
	}
}

// Binaries that are given take the place of what an earlier build left, and
// what is not given is gone, so that no cluster mixes the two.
func TestBuildFromAssets(t *testing.T) {
	assets, out := t.TempDir(), t.TempDir()
	given := filepath.Join(assets, "etcd")
	if err := os.WriteFile(given, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-scheduler"} {
		if err := os.Symlink("/older", filepath.Join(out, name)); err != nil {
			t.Fatal(err)
		}
	}
	var progress bytes.Buffer
	err := Build(t.Context(), Options{
		Source: t.TempDir(), Out: out, Cache: t.TempDir(), Assets: assets,
		Names: []string{"etcd", "kube-scheduler"}, Progress: &progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(out, "etcd")); err != nil || target != given {
		t.Errorf("etcd leads to %q, %v, want %q", target, err, given)
	}
	if _, err := os.Lstat(filepath.Join(out, "kube-scheduler")); !os.IsNotExist(err) {
		t.Errorf("the older kube-scheduler is still there: %v", err)
	}
	if text := progress.String(); !strings.Contains(text, "kube-scheduler is missing") {
		t.Errorf("progress does not name what is missing:\n%s", text)
	}
}

// A build that fails leaves nothing that could be taken for a program.
func TestFailedBuildLeavesNothing(t *testing.T) {
	source, out := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "go.mod"), []byte("module m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Build(t.Context(), Options{Source: source, Out: out, Names: []string{"fakenodes"}, Progress: &bytes.Buffer{}})
	if err == nil || !strings.Contains(err.Error(), "provide fakenodes: go build ./cmd/fakenodes") {
		t.Errorf("got %v, want an error that names the program and the command", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
