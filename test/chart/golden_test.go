package chart_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

var update = flag.Bool("update", false, "write the golden files")

// standIns take the place of what is generated and tested elsewhere, so that a
// golden file changes with the templates only. Each is as small as its shape allows.
var standIns = map[string]string{
	"files/crds/migration.projectcalico.org_datastoremigrations.yaml": crd("datastoremigrations.migration.projectcalico.org"),
	"files/crds/phasegate.dev_machinedefinitions.yaml":                crd("machinedefinitions.phasegate.dev"),
	"files/crds/phasegate.dev_machinestates.yaml":                     crd("machinestates.phasegate.dev"),
	"files/crds/toolhive.stacklok.dev_mcpservers.yaml":                crd("mcpservers.toolhive.stacklok.dev"),
	"files/rbac/datastoremigration.yaml": "rules:\n- {apiGroups: [projectcalico.org], resources: [bgpfilters, ippools], verbs: [create]}\n" +
		"- {apiGroups: [crd.projectcalico.org], resources: [bgpfilters, ippools], verbs: [get]}\n",
	"files/rbac/datastoremigration-apiservers.yaml": "rules:\n- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list]}\n",
	"files/rbac/datastoremigration-backup.yaml":     "rules:\n- {apiGroups: [''], resources: [secrets], verbs: [get]}\n",
	"files/rbac/datastoremigration-cleanup.yaml":    "rules:\n- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], resourceNames: [bgpfilters.crd.projectcalico.org], verbs: [delete]}\n",
	"files/rbac/datastoremigration-copyahead.yaml":  "rules:\n- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], resourceNames: [bgpfilters.projectcalico.org], verbs: [patch]}\n",
	"files/rbac/datastoremigration-dependents.yaml": "rules:\n- {apiGroups: ['*'], resources: ['*'], verbs: [list]}\n",
	"files/rbac/mcpserver.yaml":                     "rules:\n- {apiGroups: [toolhive.stacklok.dev], resources: [mcpservers], verbs: [get]}\n",
	"files/rbac/mcpserver-toolhive.yaml":            "rules:\n- {apiGroups: [toolhive.stacklok.dev], resources: [mcpoidcconfigs], verbs: [get]}\n",
	"files/rbac/custom.yaml":                        "rules:\n- {apiGroups: [events.k8s.io], resources: [events], verbs: [create]}\n",
	"files/machines/datastore-migration.yaml": "# A comment.\nmetadata: {name: datastore-migration}\nspec:\n  phases:\n" +
		"  - {name: WaitingForConflictResolution, poll: 5s}\n  - {name: Migrating, steps: [{action: Drain, with: {quiet: 1s, atMost: 10s}}]}\n",
	"files/machines/mcpserver.yaml":   "metadata: {name: mcpserver}\nspec: {phases: []}\n",
	"files/kinds.yaml":                "kind: KindRegistry\nspec:\n  kinds:\n  - {kind: IPPool, plural: ippools, scope: Cluster}\n",
	"files/monitoring/rules.yaml":     "groups:\n- name: '{{ $labels.not_rendered }}'\n",
	"files/monitoring/dashboard.json": "{\"title\": \"{{ not_rendered }}\"}\n",
}

func crd(name string) string {
	return fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: %s\n  annotations: {made-by: test}\n", name)
}

// small makes the chart that golden files are made of: of no version, and with stand-ins.
func small(t *testing.T, version, appVersion *string, files []*common.File) {
	t.Helper()
	*version, *appVersion = "0.0.0", "0.0.0"
	left := len(standIns)
	for _, f := range files {
		text, ok := standIns[f.Name]
		switch {
		case ok:
			f.Data = []byte(text)
			left--
		case strings.HasPrefix(f.Name, "files/"):
			t.Errorf("%s has no stand-in: add one, or the golden files depend on it", f.Name)
		}
	}
	if left != 0 {
		t.Errorf("%d stand-ins are for files that the chart does not have", left)
	}
}

// sameEverywhere are labels of each object, which would be a third of the lines.
var sameEverywhere = regexp.MustCompile(`(?m)^ +(app\.kubernetes\.io/(version|managed-by|part-of)|helm\.sh/chart): .*\n`)

// What the templates make of the values of charts/phasegate/ci, for people to read
// in a review: `go test -run TestGolden -update`.
func TestGolden(t *testing.T) {
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			c := chartV4(t)
			small(t, &c.Metadata.Version, &c.Metadata.AppVersion, c.Files)
			out, err := renderV4(c, given, monitoring)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, o := range out.objects(t) {
				fmt.Fprintf(&got, "---\n# %s\n%s\n", o.template, strings.TrimSpace(sameEverywhere.ReplaceAllString(string(o.text), "")))
			}
			fmt.Fprintf(&got, "--- # NOTES.txt\n%s\n", strings.TrimSpace(out["phasegate/templates/NOTES.txt"]))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v: go test -run TestGolden -update writes it", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("the render is not that of %s (-want +got); if it should be: go test -run TestGolden -update\n%s", file, diff)
			}
		})
	}
}

// Helm 3 ended, but not everybody's did.
func TestBothHelmsRenderTheSame(t *testing.T) {
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			four, err := renderV4(chartV4(t), given, monitoring)
			if err != nil {
				t.Fatal(err)
			}
			three, err := renderV3(chartV3(t), given, monitoring)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(four, three); diff != "" {
				t.Errorf("Helm 3 renders otherwise (-v4 +v3):\n%s", diff)
			}
		})
	}
}

// What `helm lint --strict` says, with each file of values.
func TestLint(t *testing.T) {
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			for _, message := range lint.RunAll(chartDir, given, namespace, lint.WithKubeVersion(&common.KubeVersion{Version: kubeVersion, Major: "1", Minor: "30"})).Messages {
				if message.Severity >= support.WarningSev {
					t.Errorf("%v", message)
				}
			}
		})
	}
}
