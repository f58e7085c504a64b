package tools

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    string
		why     string
	}{
		"nothing":     {why: "the pinned version is built"},
		"a release":   {options: Options{Kubernetes: "v1.30.14"}, why: "it is what is asked for"},
		"a candidate": {options: Options{Kubernetes: "v1.38.0-rc.1"}, why: "it is published, too"},
		"no patch":    {options: Options{Kubernetes: "v1.30"}, want: `"v1.30" is no version of Kubernetes: write one as in KUBE=v1.30.14`, why: "there is no such module version"},
		"no v":        {options: Options{Kubernetes: "1.30.14"}, want: `"1.30.14" is no version of Kubernetes`, why: "versions of modules have one"},
		"libraries":   {options: Options{Kubernetes: "v0.30.14"}, want: `"v0.30.14" is no version of Kubernetes`, why: "that is one of its libraries"},
		"ready ones":  {options: Options{Kubernetes: "v1.30.14", Assets: "/ready"}, want: "give one of the two", why: "one of the two would be ignored"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			switch err := tc.options.Check(); {
			case tc.want == "" && err != nil:
				t.Errorf("%v, but %s", err, tc.why)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q: %s", err, tc.want, tc.why)
			}
		})
	}
}

func TestGenerate(t *testing.T) {
	published := `// Generated.

module k8s.io/kubernetes

go 1.22.0

require github.com/google/cel-go v0.17.8

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	example.com/fork => example.com/ours v1.2.3
)
`
	want := `// Generated.

module phasegate.dev/kubernetes

go 1.22.0

require github.com/google/cel-go v0.17.8

replace (
	k8s.io/api => k8s.io/api v0.30.14
	example.com/fork => example.com/ours v1.2.3
)

require k8s.io/kubernetes v1.30.14
`
	if diff := cmp.Diff(want, string(generate([]byte(published), "v1.30.14"))); diff != "" {
		t.Errorf("go.mod (-want +got):\n%s", diff)
	}
}

// A proxy that serves nothing has no version, either.
func TestUnservedVersion(t *testing.T) {
	proxy, cache, out := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	if err := os.MkdirAll(filepath.Join(proxy, "k8s.io/kubernetes/@v"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Build(t.Context(), Options{Source: t.TempDir(), Out: out, Cache: cache, Names: []string{"kube-apiserver"}, Kubernetes: "v1.99.0", Progress: &bytes.Buffer{}})
	for _, part := range []string{"provide kube-apiserver: ", "kubernetes v1.99.0 cannot be fetched: ", "name a release that the module proxy serves"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q: what, where and what to do", err, part)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
