package crds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/resources"
)

func TestGenerateMakesAPairPerKind(t *testing.T) {
	reg := resources.Default()
	got := map[string]string{}
	for _, crd := range Generate(reg).CRDs {
		spec := crd.Object["spec"].(map[string]any)
		names := spec["names"].(map[string]any)
		version := spec["versions"].([]any)[0].(map[string]any)
		got[crd.GetName()] = strings.Join([]string{
			spec["scope"].(string), names["kind"].(string), version["name"].(string), map[bool]string{true: "status"}[version["subresources"] != nil],
		}, " ")
	}
	want := map[string]string{}
	for _, k := range reg.All() {
		scope, status := "Cluster", ""
		if k.Namespaced() {
			scope = "Namespaced"
		}
		if k.HasStatus(nil) {
			status = "status"
		}
		want[k.V1CRDName()] = strings.Join([]string{scope, k.V1Kind(), "v1", status}, " ")
		want[k.V3CRDName()] = strings.Join([]string{scope, k.Name(), "v3", status}, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	if len(got) != 44 {
		t.Errorf("%d definitions, want 22 in each group", len(got))
	}
}

func TestRead(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		files   map[string]string
		want    []int // CRDs, admission objects
		wantErr string
		why     string
	}{
		"all folders": {
			files: map[string]string{"v1/a.yaml": crd, "v3/a.yaml": crd, "admission/p.yaml": "kind: P\n---\nkind: B\n"},
			want:  []int{2, 2}, why: "a file may hold several documents",
		},
		"no admission": {
			files: map[string]string{"v1/a.yaml": crd, "v3/a.yaml": "---\n" + crd},
			want:  []int{2, 0}, why: "the policies are optional, and an empty document is none",
		},
		"no v3": {
			files: map[string]string{"v1/a.yaml": crd}, wantErr: "no CRD in",
			why: "a wrong directory must not look like an empty cluster",
		},
		"broken": {
			files: map[string]string{"v1/a.yaml": "a: [", "v3/a.yaml": crd}, wantErr: "v1/a.yaml",
			why: "the error names the file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tc.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set, err := Read(dir)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q: %s", err, tc.wantErr, tc.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, []int{len(set.CRDs), len(set.Admission)}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
