package main

import (
	"crypto/sha256"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// full builds the real programs, one time from nothing: `make reproducible`. The
// short form has a small program, so that a test costs seconds even with cold caches.
var full = flag.Bool("full", false, "build the real programs, one time from nothing")

// small prints how it was stamped, and embeds a file, as the real ones do.
const small = `package main

import (
	_ "embed"
	"fmt"

	"github.com/phasegate/phasegate/cmd/internal/release"
)

//go:embed data.txt
var data string

func main() { fmt.Println(release.Current().Version, release.Current().Commit, data) }
`

// stamps are given, so that two directories do not need to be clones.
var stamps = []string{"VERSION=v1.2.3", "COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000"}

// elsewhere is another machine, as far as one can be played: whatever of it got into
// the bytes would make them differ.
var elsewhere = []string{"TZ=Asia/Tokyo", "LC_ALL=C", "GOFLAGS=-ldflags=-w -tags=other", "GOAMD64=v3", "GOEXPERIMENT=jsonv2", "USER=other"}

func TestProgramsAreReproducible(t *testing.T) {
	names := []string{"small"}
	here, there := sources(t), sources(t)
	cold := elsewhere
	if *full {
		names = slices.Sorted(maps.Keys(programs))
		// A builder of images has less than a clone, and no cache.
		here, there = root, copied(t, inContext(t))
		cold = append(cold, "GOCACHE="+t.TempDir())
	}
	first := built(t, here, nil, names)
	second := built(t, there, cold, names)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the same sources gave other bytes (-first +second sha256):\n%s", diff)
	}
	for name, hash := range first {
		t.Logf("%x  %s", hash, name)
	}
}

// TestDirectoriesShowWithoutTrimpath proves that the comparison can fail.
func TestDirectoriesShowWithoutTrimpath(t *testing.T) {
	var hashes []map[string][sha256.Size]byte
	for range 2 {
		dir := sources(t)
		script := filepath.Join(dir, "hack/build.sh")
		data, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, []byte(strings.Replace(string(data), "build -trimpath", "build", 1)), 0o755); err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, built(t, dir, nil, []string{"small"}))
	}
	if cmp.Equal(hashes[0], hashes[1]) {
		t.Error("two directories gave the same bytes without -trimpath: the comparison of them proves nothing")
	}
}

// sources are a module with a small program and our way to build it.
func sources(t *testing.T) string {
	t.Helper()
	dir := copied(t, func(path string) bool {
		return path == "hack/build.sh" || path == "cmd/internal/release/release.go"
	})
	for name, text := range map[string]string{
		"go.mod":             "module github.com/phasegate/phasegate\n\ngo 1.26.0\n",
		"cmd/small/main.go":  small,
		"cmd/small/data.txt": "embedded",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// built builds programs and returns their hashes.
func built(t *testing.T, dir string, env, names []string) map[string][sha256.Size]byte {
	t.Helper()
	out := t.TempDir()
	script(t, dir, env, "build.sh", append([]string{out}, names...)...)
	hashes := map[string][sha256.Size]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		hashes[name] = sha256.Sum256(data)
	}
	if slices.Contains(names, "small") {
		said, err := exec.CommandContext(t.Context(), filepath.Join(out, "small")).Output()
		if want := "v1.2.3 0123456789abcdef embedded\n"; err != nil || string(said) != want {
			t.Errorf("a stamped program says %q, %v; want %q", said, err, want)
		}
	}
	return hashes
}

func script(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	absolute, err := filepath.Abs(filepath.Join(dir, "hack", name))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), absolute, args...)
	cmd.Env = slices.Concat(os.Environ(), stamps, env)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func TestChartIsReproducible(t *testing.T) {
	helm, err := filepath.Abs(filepath.Join(root, "bin/tools/helm"))
	if err != nil {
		t.Fatal(err)
	}
	var archives [][]byte
	for i := range 2 {
		dir := copied(t, func(path string) bool {
			return path == "hack/chart.sh" || strings.HasPrefix(path, "charts/phasegate/")
		})
		old := time.Unix(1_600_000_000+int64(i)*86_400, 0)
		if err := os.Chtimes(filepath.Join(dir, "charts/phasegate/Chart.yaml"), old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "charts/phasegate/values.yaml"), []os.FileMode{0o600, 0o644}[i]); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		script(t, dir, append(elsewhere, "HELM="+helm), "chart.sh", out)
		data, err := os.ReadFile(filepath.Join(out, "phasegate-1.2.3.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, data)
	}
	if !slices.Equal(archives[0], archives[1]) {
		t.Errorf("the same chart gave other bytes: sha256 %s and %s", sum(archives[0]), sum(archives[1]))
	}
	t.Logf("%s  phasegate-1.2.3.tgz", sum(archives[0]))
}
