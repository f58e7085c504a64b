// Package chart tests charts/phasegate without a cluster: what Helm 4 and Helm 3
// make of it, and whether Kubernetes would take that. It has a go.mod of its own,
// so that Helm never becomes a dependency of the product.
package chart_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	chart3 "helm.sh/helm/v3/pkg/chart"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	util3 "helm.sh/helm/v3/pkg/chartutil"
	engine3 "helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart4 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../charts/phasegate"
	release   = "phasegate"
	namespace = "phasegate-system"
	// kubeVersion is the oldest that the chart takes.
	kubeVersion = "v1.30.0"
	// monitoring is what the Prometheus operator serves.
	monitoring = "monitoring.coreos.com/v1"
)

// rendered is what Helm sends to the API server, by template, and the notes.
type rendered map[string]string

// chartV3 and chartV4 are read anew for each render: templates change what they read.
func chartV4(t *testing.T) *chart4.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func renderV4(c *chart4.Chart, values map[string]any, apis ...string) (rendered, error) {
	all := common.VersionSet(slices.Concat(common.DefaultVersionSet, apis))
	caps := &common.Capabilities{KubeVersion: common.KubeVersion{Version: kubeVersion, Major: "1", Minor: "30"}, APIVersions: all}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	given, err := util.ToRenderValues(c, values, options, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, given)
}

func renderV3(c *chart3.Chart, values map[string]any, apis ...string) (rendered, error) {
	all := util3.VersionSet(slices.Concat(util3.DefaultVersionSet, apis))
	caps := &util3.Capabilities{KubeVersion: util3.KubeVersion{Version: kubeVersion, Major: "1", Minor: "30"}, APIVersions: all}
	options := util3.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	given, err := util3.ToRenderValues(c, values, options, caps)
	if err != nil {
		return nil, err
	}
	return engine3.Render(c, given)
}

// mustRender is for tests of what the templates make, whichever Helm it is.
func mustRender(t *testing.T, values map[string]any) rendered {
	t.Helper()
	out, err := renderV4(chartV4(t), values, monitoring)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// values of a file, or of a text.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// scenes are the values of charts/phasegate/ci by their short names.
func scenes(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = values(t, string(data))
	}
	if len(out) < 4 {
		t.Fatalf("charts/phasegate/ci has values for %v only", slices.Collect(maps.Keys(out)))
	}
	return out
}

// object is one object of a render.
type object struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	template          string
	text              []byte
}

func (o *object) String() string { return fmt.Sprintf("%s: %s %s", o.template, o.Kind, o.Name) }

// objects of a render, in the order of templates and names in the file.
func (r rendered) objects(t *testing.T) []*object {
	t.Helper()
	var out []*object
	for _, path := range slices.Sorted(maps.Keys(r)) {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		for _, text := range bytes.Split([]byte("\n"+r[path]), []byte("\n---\n")) {
			if len(bytes.TrimSpace(text)) == 0 {
				continue
			}
			o := &object{template: path, text: text}
			if err := yaml.Unmarshal(text, o); err != nil {
				t.Fatalf("%s: %v:\n%s", path, err, text)
			}
			if o.Kind == "" {
				continue // a comment only
			}
			out = append(out, o)
		}
	}
	return out
}

// find the one object of a kind and a name.
func (r rendered) find(t *testing.T, kind, name string, into any) {
	t.Helper()
	for _, o := range r.objects(t) {
		if o.Kind == kind && o.Name == name {
			if err := yaml.UnmarshalStrict(o.text, into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
}

func chartV3(t *testing.T) *chart3.Chart {
	t.Helper()
	c, err := loader3.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
