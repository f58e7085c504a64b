package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/cluster/internal/process"
)

func TestExamine(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  condition
		why   string
	}{
		"empty":    {want: absent, why: "a fresh directory may be used"},
		"foreign":  {files: map[string]string{"notes": "x"}, want: foreign, why: "nobody's files may be removed by cluster down"},
		"dead":     {files: map[string]string{"cluster.json": `{"servers": ["etcd"]}`}, want: dead, why: "nothing runs under the name"},
		"unstated": {files: map[string]string{"cluster.json": `{}`}, want: dead, why: "a record without servers is that of no cluster"},
		"existing": {files: map[string]string{"cluster.json": `{"existing": "/k"}`}, want: live, why: "a cluster we did not start is not ours to judge"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, _, err := examine(layout{process.Home(dir)})
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q: %s", got, err, tc.want, tc.why)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	tests := map[string]struct {
		running []string
		want    condition
		why     string
	}{
		"all":  {running: []string{etcd, apiServer}, want: live, why: "then up has nothing to do"},
		"some": {running: []string{etcd}, want: dead, why: "half a cluster is none"},
		"none": {want: dead, why: "as after a reboot"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			found := &record{Servers: []string{etcd, apiServer}}
			got := found.condition(func(name string) int { return slices.Index(tc.running, name) + 1 })
			if got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.why)
			}
		})
	}
}

func TestServers(t *testing.T) {
	tests := map[string]struct {
		without []string
		want    []string
		why     string
	}{
		"all":        {want: []string{etcd, apiServer, controllerManager, scheduler, fakeNodes}, why: "the order is that of the start"},
		"long name":  {without: []string{"kube-scheduler", "fakenodes"}, want: []string{etcd, apiServer, controllerManager}, why: "the name of the binary"},
		"short name": {without: []string{"scheduler", "controller-manager"}, want: []string{etcd, apiServer, fakeNodes}, why: "kube- says nothing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := Options{Without: tc.without}
			if err := o.Check(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range servers(layout{}, ports{}, o) {
				got = append(got, s.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := map[string]struct {
		options Options
		why     string
	}{
		"unknown":        {options: Options{Without: []string{"kubelet"}}, why: "a typing error must not start what was not wanted"},
		"needed":         {options: Options{Without: []string{"kube-apiserver"}}, why: "there is no cluster without it"},
		"negative nodes": {options: Options{Nodes: -1}, why: "it would be ready at once, with none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.options.Check(); err == nil {
				t.Errorf("accepted: %s", tc.why)
			}
		})
	}
}

func TestCountReady(t *testing.T) {
	const (
		good    = `{"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		tainted = `{"spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		bad     = `{"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}`
	)
	list := []byte(`{"items": [` + good + `,` + tainted + `,` + bad + `]}`)
	tests := map[string]struct {
		untaint bool
		want    int
		why     string
	}{
		"with a controller manager":    {untaint: true, want: 1, why: "no pod is scheduled to a tainted node"},
		"without a controller manager": {want: 2, why: "nobody takes the taint away"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := countReady(list, tc.untaint); err != nil || got != tc.want {
				t.Errorf("got %d, %v, want %d: %s", got, err, tc.want, tc.why)
			}
		})
	}
}

func TestFreePortsDiffer(t *testing.T) {
	got, err := freePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if different := slices.Compact(slices.Clone(got)); len(different) != 50 || got[0] < lowestPort {
		t.Errorf("got %v, want 50 different ports from %d", got, lowestPort)
	}
}
