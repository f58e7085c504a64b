package podrunner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is what a program that reads a directory sees in it, hidden names left out.
func seen(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(text)
	}
	return files
}

// A volume is what its ConfigMap says now, and nothing is left of what it said before.
func TestPublish(t *testing.T) {
	dir := volumeDir(t.TempDir(), "machines")
	turns := []struct {
		why   string
		files map[string]string
	}{
		{"the first files", map[string]string{"a.yaml": "1", "b.yaml": "2"}},
		{"one changes, one goes, one comes", map[string]string{"a.yaml": "3", "c.yaml": "4"}},
		{"the same again", map[string]string{"a.yaml": "3", "c.yaml": "4"}},
		{"as it was at first: nothing stands in the way", map[string]string{"a.yaml": "1", "b.yaml": "2"}},
		{"an empty ConfigMap is an empty directory", map[string]string{}},
	}
	for _, turn := range turns {
		if err := publish(dir, turn.files); err != nil {
			t.Fatalf("%s: %v", turn.why, err)
		}
		if diff := cmp.Diff(turn.files, seen(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", turn.why, diff)
		}
		hidden, err := filepath.Glob(filepath.Join(dir, "..*"))
		if err != nil || len(hidden) != 2 {
			t.Errorf("%s: want the link and what it points to, got %v (%v)", turn.why, hidden, err)
		}
	}
}

// Whoever has the directory open sees all of one state: the link is exchanged, files are not written over.
func TestPublishIsOneMoment(t *testing.T) {
	dir := volumeDir(t.TempDir(), "machines")
	if err := publish(dir, map[string]string{"a.yaml": "1"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	if err := publish(dir, map[string]string{"a.yaml": "2"}); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 8)
	n, err := file.Read(text)
	if err != nil || string(text[:n]) != "1" {
		t.Errorf("the file that was open reads %q (%v), want what it was", text[:n], err)
	}
}
