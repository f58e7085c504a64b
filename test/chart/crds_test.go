package chart_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const (
	stateCRD      = "machinestates.phasegate.dev"
	definitionCRD = "machinedefinitions.phasegate.dev"
	migrationCRD  = "datastoremigrations.migration.projectcalico.org"
	serverCRD     = "mcpservers.toolhive.stacklok.dev"
	policies      = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
)

// cluster is what `lookup` finds: objects by kind and name.
type cluster map[string]map[string]any

func (c cluster) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return lookup{kind: kind, objects: c}, false, nil
}

// lookup is as much of a client as Helm's function of that name needs.
type lookup struct {
	dynamic.NamespaceableResourceInterface
	kind    string
	objects cluster
}

func (l lookup) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if object, ok := l.objects[l.kind+" "+name]; ok {
		return &unstructured.Unstructured{Object: object}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: l.kind}, name)
}

func (l lookup) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{}}
	for _, key := range slices.Sorted(maps.Keys(l.objects)) {
		if strings.HasPrefix(key, l.kind+" ") {
			list.Items = append(list.Items, unstructured.Unstructured{Object: l.objects[key]})
		}
	}
	return list, nil
}

// crd puts a CRD on the cluster, with our schema or another one.
func (c cluster) crd(t *testing.T, name string, ours bool, annotations string) cluster {
	t.Helper()
	field := "phase"
	if ours {
		field = "machine"
	}
	object := map[string]any{}
	text := "{metadata: {name: " + name + ", annotations: " + annotations + "}, spec: {versions: [" +
		"{name: v1beta1, storage: false, schema: {openAPIV3Schema: {properties: {spec: {}}}}}, " +
		"{name: v1, storage: true, schema: {openAPIV3Schema: {properties: {status: {properties: {" + field + ": {}}}}}}}]}}"
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	c["CustomResourceDefinition "+name] = object
	return c
}

func newCluster() cluster {
	return cluster{"Namespace kube-system": {"metadata": map[string]any{"name": "kube-system"}}}
}

// renderOn is what helm install and helm upgrade do: they ask the cluster.
func renderOn(t *testing.T, c cluster, given map[string]any, apis ...string) (rendered, error) {
	t.Helper()
	caps := &common.Capabilities{KubeVersion: common.KubeVersion{Version: kubeVersion, Major: "1", Minor: "30"}, APIVersions: append(common.DefaultVersionSet, apis...)}
	chart := chartV4(t)
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 2, IsUpgrade: true}, caps)
	if err != nil {
		t.Fatal(err)
	}
	return engine.RenderWithClientProvider(chart, all, c)
}

// crdsOf are the names of the CRDs of a render, each with whether it stays on an uninstall.
func crdsOf(t *testing.T, out rendered) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, o := range out.objects(t) {
		if o.Kind == "CustomResourceDefinition" {
			found[o.Name] = o.Annotations["helm.sh/resource-policy"] == "keep"
		}
	}
	return found
}

// What is others' is not taken, not overwritten, and not deleted; what is ours is brought up to date.
func TestWhichCRDsAreInstalled(t *testing.T) {
	const (
		mine      = `{meta.helm.sh/release-name: phasegate, meta.helm.sh/release-namespace: phasegate-system, helm.sh/resource-policy: keep}`
		unkept    = `{meta.helm.sh/release-name: phasegate, meta.helm.sh/release-namespace: phasegate-system}`
		elsewhere = `{meta.helm.sh/release-name: phasegate, meta.helm.sh/release-namespace: other, helm.sh/resource-policy: keep}`
		toolhive  = `{meta.helm.sh/release-name: toolhive-crds, meta.helm.sh/release-namespace: toolhive}`
		none      = `{}`
		all       = "{}"
	)
	everything := map[string]bool{definitionCRD: true, stateCRD: true, migrationCRD: true, serverCRD: true}
	cases := map[string]struct {
		why     string
		cluster cluster
		values  string
		want    map[string]bool // whether it stays, by name
		notes   string
		fails   []string
	}{
		"nothing there": {why: "then ours are offered", cluster: newCluster(), values: all, want: everything},
		"no cluster":    {why: "helm template cannot ask", cluster: cluster{}, values: all, want: everything},
		"upgrade": {why: "what we do not render any more, Helm deletes", values: all, want: everything,
			cluster: newCluster().crd(t, stateCRD, true, mine).crd(t, migrationCRD, true, mine).crd(t, serverCRD, true, mine)},
		"by kubectl": {why: "Calico's manifests bring theirs", values: all, want: map[string]bool{definitionCRD: true, stateCRD: true, serverCRD: true},
			cluster: newCluster().crd(t, migrationCRD, false, none), notes: migrationCRD + ": it was there before"},
		"by a chart": {why: "ToolHive's is that of a release", values: all, want: map[string]bool{definitionCRD: true, stateCRD: true, migrationCRD: true},
			cluster: newCluster().crd(t, serverCRD, false, toolhive), notes: serverCRD + ": it belongs to the release toolhive-crds in namespace toolhive"},
		"applied over ours": {why: "the annotations are ours still, what is in it is Calico's", values: all, want: map[string]bool{definitionCRD: true, stateCRD: true, serverCRD: true},
			cluster: newCluster().crd(t, migrationCRD, false, mine), notes: migrationCRD + ": it was installed by this chart, but another program"},
		"applied over ours, not kept": {why: "Helm would delete it, and Calico's objects with it", values: all,
			cluster: newCluster().crd(t, migrationCRD, false, unkept), fails: []string{"crds.install", migrationCRD, "kubectl annotate crd"}},
		"two releases": {why: "one for each controller: the CRD of MachineState is that of the first", values: all, want: map[string]bool{definitionCRD: true, migrationCRD: true, serverCRD: true},
			cluster: newCluster().crd(t, stateCRD, true, elsewhere), notes: stateCRD + ": it belongs to the release phasegate in namespace other"},
		"a controller less": {why: "its CRD is nobody's business", values: `{controllers: {mcpserver: {enabled: false}}}`, want: map[string]bool{definitionCRD: true, stateCRD: true, migrationCRD: true}, cluster: newCluster()},
		"always": {why: "Helm itself refuses what belongs to others, and takes it with --take-ownership", values: `{crds: {install: always}}`, want: everything,
			cluster: newCluster().crd(t, migrationCRD, false, none)},
		"own": {why: "the word for Argo CD beside Calico and ToolHive", values: `{crds: {install: own}}`, want: map[string]bool{definitionCRD: true, stateCRD: true}, cluster: cluster{}, notes: serverCRD + ": crds.install is own"},
		"own, after always without keep": {why: "Helm would delete ours", values: `{crds: {install: own}}`,
			cluster: newCluster().crd(t, serverCRD, true, unkept), fails: []string{serverCRD, "kubectl annotate crd"}},
		"never":            {why: "somebody else installs all", values: `{crds: {install: never}}`, want: map[string]bool{}, cluster: cluster{}, notes: stateCRD + ": crds.install is never"},
		"deleted with it":  {why: "states stay all the same", values: `{crds: {install: always, keep: false}}`, want: map[string]bool{definitionCRD: true, stateCRD: true, migrationCRD: false, serverCRD: false}, cluster: newCluster()},
		"deleted, by auto": {why: "on an uninstall nobody asks whose they are by then", values: `{crds: {keep: false}}`, cluster: newCluster(), fails: []string{"crds.keep", "crds.install=always"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := renderOn(t, c.cluster, values(t, c.values), policies)
			for _, part := range c.fails {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q: %v", c.why, part, err)
				}
			}
			if c.fails != nil {
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.why, err)
			}
			if diff := cmp.Diff(c.want, crdsOf(t, out)); diff != "" {
				t.Errorf("%s (-want +installed, true where it is kept):\n%s", c.why, diff)
			}
			notes := out["phasegate/templates/NOTES.txt"]
			if said := strings.Contains(notes, "Not installed by this release"); said != (c.notes != "") || !strings.Contains(notes, c.notes) {
				t.Errorf("the notes do not say %q but:\n%s", c.notes, notes)
			}
		})
	}
}
