package toolhive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// envOperator names ToolHive's operator, envCRDs the directory of its CRDs of the same version,
	// envReport a file for all differences.
	envOperator, envCRDs, envReport = "THV_OPERATOR", "TOOLHIVE_CRDS", "FACTS_REPORT"
	// least is the share of facts of all servers that must be equal, in percent.
	least = 95
	// quiet is how long nothing may change before facts are read: ToolHive's operator looks
	// again after ten seconds at the latest.
	quiet = 12 * time.Second
)

// refused are the servers that ToolHive's operator calls Ready and ours refuses: no pod of them would start. See
// docs/reference/toolhive-fields.md.
var refused = []string{"ca-missing"}

// madeKinds are the kinds of what an operator, or a proxy, makes of a server.
var madeKinds = []string{"v1 ConfigMap", "v1 Service", "v1 ServiceAccount", "apps/v1 Deployment", "apps/v1 StatefulSet",
	"rbac.authorization.k8s.io/v1 Role", "rbac.authorization.k8s.io/v1 RoleBinding"}

// TestSameFacts makes the same servers on two control planes, one with ToolHive's operator and one
// with our manager, both on ToolHive's CRDs, and compares all objects and the status that they make,
// field by field. The configurations on ours have the status that ToolHive's controllers gave them,
// as for a user who switches. ToolHive's operator sends no usage metrics. A stand-in makes the StatefulSets in the
// place of the proxies.
func TestSameFacts(t *testing.T) {
	needs(t, envOperator, envCRDs)
	var configurations []*unstructured.Unstructured
	var theirs, ours map[string]facts
	t.Run("theirs", func(t *testing.T) {
		w := newPlane(t)
		w.makeServers(read(t, "configurations.yaml"))
		theirs = w.settled(w.startOperator())
		configurations = w.configurations()
	})
	if t.Failed() {
		return
	}
	t.Run("ours", func(t *testing.T) {
		w := newPlane(t)
		w.makeServers(configurations)
		w.startManager("toolhive")
		ours = w.settled(w.manager)
	})
	if t.Failed() {
		return
	}
	compare(t, theirs, ours)
}

// newPlane is a control plane with ToolHive's CRDs, and nobody who sees to servers.
func newPlane(t *testing.T) *world {
	t.Helper()
	log.SetLogger(klog.Background())
	w := &world{T: t, mu: &sync.Mutex{}, ns: "facts", backends: map[string]string{}, networks: map[string]string{}}
	w.Cluster = harness.ForTest(t, harness.Options{Own: true, Types: []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1alpha1.AddToScheme}})
	set := crds.Set{}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.Getenv(envCRDs)
	for _, from := range []string{theirs, filepath.Join(root, "charts", "phasegate", "files", "crds")} {
		found, err := crds.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		set.CRDs = append(set.CRDs, slices.DeleteFunc(found, func(crd *unstructured.Unstructured) bool {
			return from != theirs && !strings.HasSuffix(crd.GetName(), "."+v1alpha1.GroupVersion.Group)
		})...)
	}
	if err := crds.Install(t.Context(), w.Config, set); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// startOperator runs ToolHive's operator.
func (w *world) startOperator() *harness.Process { w.Helper(); return w.startOperatorAs(w.Kubeconfig) }

func (w *world) startOperatorAs(kubeconfig string) *harness.Process {
	w.Helper()
	return harness.ProcessForTest(w, harness.Program{Name: "operator", Path: os.Getenv(envOperator), LogDir: w.LogDir,
		Args: []string{"--metrics-bind-address=0", "--health-probe-bind-address=0"},
		Env: []string{"KUBECONFIG=" + kubeconfig, "TOOLHIVE_RUNNER_IMAGE=" + theirImage, "TOOLHIVE_PROXY_HOST=0.0.0.0",
			"TOOLHIVE_SKIP_UPDATE_CHECK=true", "TOOLHIVE_USAGE_METRICS_ENABLED=false", "POD_NAMESPACE=" + metav1.NamespaceDefault}})
}

// makeServers makes the configurations and all servers, and what their proxies would.
func (w *world) makeServers(configurations []*unstructured.Unstructured) {
	w.Helper()
	for _, obj := range append(configurations, servers(w.T)...) {
		w.make(obj)
	}
	go w.playProxies(w.Context())
}

// make creates an object with the status that it has.
func (w *world) make(from *unstructured.Unstructured) {
	w.Helper()
	obj := from.DeepCopy()
	obj.SetNamespace(w.ns)
	if err := w.Client.Create(w.Context(), obj); err != nil {
		w.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	if status := from.Object["status"]; status != nil {
		obj.Object["status"] = status
		if err := w.Client.Status().Update(w.Context(), obj); err != nil {
			w.Fatalf("status of %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// configurations are those of the plane with the status that they have now.
func (w *world) configurations() (all []*unstructured.Unstructured) {
	w.Helper()
	for _, obj := range read(w.T, "configurations.yaml") {
		now := obj.DeepCopy()
		if err := w.Client.Get(w.Context(), w.key(obj.GetName()), now); err != nil {
			w.Fatal(err)
		}
		if status := now.Object["status"]; status != nil {
			obj.Object["status"] = status
		}
		all = append(all, obj)
	}
	return all
}

func read(t *testing.T, file string) (all []*unstructured.Unstructured) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return decode(t, f)
}

func decode(t *testing.T, from io.Reader) (all []*unstructured.Unstructured) {
	t.Helper()
	for decoder := utilyaml.NewYAMLOrJSONDecoder(from, 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, obj)
	}
}

func servers(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "servers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]map[string]any{}
	if err := yaml.Unmarshal(text, &specs); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[key]
		spec["image"] = image
		if spec["transport"] == nil {
			spec["transport"] = v1beta1.TransportStreamableHTTP
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		obj.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
		obj.SetName("s-" + key) // a name that is no part of any other word
		all = append(all, obj)
	}
	return all
}

// playProxies makes the StatefulSet of each Deployment, as the proxy in its pods would.
func (w *world) playProxies(ctx context.Context) {
	for ctx.Err() == nil {
		list := &appsv1.DeploymentList{}
		if err := w.Client.List(ctx, list, client.InNamespace(w.ns)); err == nil {
			for _, d := range list.Items {
				if ptr.Deref(d.Spec.Replicas, 1) == 0 || d.Labels[v1beta1.LabelName] == "" {
					continue
				}
				_ = w.Client.Create(ctx, backend(&d)) // it is there already, or the next round makes it
			}
		}
		time.Sleep(time.Second)
	}
}

func backend(d *appsv1.Deployment) *appsv1.StatefulSet {
	labels := map[string]string{"app": d.Name, "toolhive": "true", v1beta1.LabelName: d.Name}
	stamp := map[string]string{v1beta1.AnnotationGeneration: d.Spec.Template.Annotations[v1beta1.AnnotationGeneration]}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: labels, Annotations: stamp},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: d.Name, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.Name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: stamp},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: v1beta1.BackendContainer, Image: image}}},
			},
		},
	}
}

// settled are the facts of each server once all have come to something, and nothing changes any more.
func (w *world) settled(process *harness.Process) map[string]facts {
	w.Helper()
	var last map[string]facts
	since := time.Now()
	err := harness.Await(w.Context(), "nothing changes", 6*time.Minute, func(context.Context) error {
		if err := process.Alive(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // a look is many requests
		now, err := w.facts()
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(last, now) {
			last, since = now, time.Now()
		}
		for server, f := range now {
			if phase := f[phasePath]; !slices.Contains([]string{"Ready", "Failed", "Stopped"}, phase) {
				return fmt.Errorf("%s is in phase %q", server, phase)
			}
		}
		if left := quiet - time.Since(since); left > 0 {
			return fmt.Errorf("a change %s ago", time.Since(since))
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return last
}

// facts are those of each server: of itself, and of all that it controls.
func (w *world) facts() (map[string]facts, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServerList"))
	if err := w.Client.List(w.Context(), list, client.InNamespace(w.ns)); err != nil {
		return nil, err
	}
	all := map[string]facts{}
	for _, srv := range list.Items {
		f := facts{}
		f.add("MCPServer.status", srv.Object["status"])
		f.add("MCPServer.metadata.finalizers", srv.Object["metadata"].(map[string]any)["finalizers"])
		all[srv.GetName()] = f
	}
	for _, kind := range madeKinds {
		version, kind, _ := strings.Cut(kind, " ")
		objects := &unstructured.UnstructuredList{}
		objects.SetAPIVersion(version)
		objects.SetKind(kind + "List")
		if err := w.Client.List(w.Context(), objects, client.InNamespace(w.ns)); err != nil {
			return nil, err
		}
		for _, obj := range objects.Items {
			if owner := metav1.GetControllerOf(&obj); owner != nil && all[owner.Name] != nil {
				all[owner.Name].object(kind+"/"+obj.GetName(), obj.Object)
			}
		}
	}
	for server, f := range all {
		all[server] = f.renamed(server)
	}
	return all, nil
}
