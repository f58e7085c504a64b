package mcpserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// toolHive names the environment variable with the directory of ToolHive's CRDs, which are
// not in this repository.
const toolHive = "TOOLHIVE_CRDS"

// toolHivesCRDs are those as ToolHive ships them, and the kinds of our own group.
func toolHivesCRDs(t *testing.T) crds.Set {
	t.Helper()
	dir := os.Getenv(toolHive)
	if dir == "" {
		t.Skipf("not run: %s names no directory", toolHive)
	}
	theirs, err := crds.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := crds.ReadDir(filepath.Join(root, "charts", "phasegate", "files", "crds"))
	if err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(ours, func(crd *unstructured.Unstructured) bool {
		return !strings.HasSuffix(crd.GetName(), "."+v1alpha1.GroupVersion.Group)
	})
	if len(own) == 0 || !slices.ContainsFunc(theirs, func(crd *unstructured.Unstructured) bool { return crd.GetName() == v1beta1.CRDName }) {
		t.Fatalf("no CRD of our own group in the chart, or none of MCPServer in %s", dir)
	}
	return crds.Set{CRDs: append(theirs, own...)}
}

// The whole life of a server where ToolHive's CRDs are installed, and ours are not: the
// status is what their schema keeps, and the CRDs stay as they were, to the byte.
func TestLifeOnToolHivesCRDs(t *testing.T) {
	t.Parallel()
	w, err := worldWith(toolHivesCRDs(t))
	t.Cleanup(func() {
		if w != nil { // it also looks for errors in the logs: a status that was refused is one
			if err := w.close(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s := spaceIn(t, w)
	before := s.installed()

	s.create("fetch")
	s.awaitPhase("fetch", "Ready")
	s.shows("fetch", "Ready", "Ready", "True")
	s.looksWithoutWrites("fetch")

	s.notEnforced()

	was := s.workload("fetch")
	s.annotate("fetch", map[string]string{v1beta1.AnnotationRestartedAt: request})
	s.awaitRestarted("fetch", request)
	s.assertReplaced("fetch", was)
	s.shows("fetch", "Ready", "Ready", "True")
	s.looksWithoutWrites("fetch")
	if now := s.workload("fetch"); now.ReplicaSets != was.ReplicaSets+1 || now.Revisions != was.Revisions+1 {
		t.Errorf("not restarted exactly once:\n%s", cmp.Diff(was, now))
	}

	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Replicas = ptr.To[int32](0) })
	s.awaitPhase("fetch", "Stopped")
	s.awaitBackends("fetch", 0)
	s.shows("fetch", "Stopped", "Stopped", "False")
	s.looksWithoutWrites("fetch")

	s.kubectl("delete", "mcpserver", "--all", "--timeout=3m")
	s.assertNothingOf("Deployment", "StatefulSet", "Pod", "Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding")
	harness.Eventually(t, "the state to be gone", func() error {
		list := &v1alpha1.MachineStateList{}
		if err := s.Client.List(t.Context(), list); err != nil {
			return err
		}
		return same(0, len(list.Items))
	})
	if text := s.manager.Tail(1000); strings.Contains(text, "unknown field") {
		t.Errorf("the manager writes fields that ToolHive's CRD does not know:\n%s", text)
	}
	if diff := cmp.Diff(before, s.installed()); diff != "" {
		t.Errorf("the CRDs that were installed are not as they were (-before +after):\n%s", diff)
	}
}

// notEnforced makes a server that asks for protection: it is not run until somebody
// accepts that nothing enforces it, and never again once nobody does.
func (s *space) notEnforced() {
	s.t.Helper()
	s.create("guarded", func(srv *v1beta1.MCPServer) {
		srv.Spec.AuthzConfig = &apiextensionsv1.JSON{Raw: []byte(`{"type":"inline","inline":{"policies":["permit(principal, action, resource);"]}}`)}
	})
	s.awaitPhase("guarded", "Failed")
	s.shows("guarded", "Failed", "Failed", "False")
	s.awaitCondition("guarded", v1beta1.ConditionSpecEnforced, "False", v1beta1.ReasonNotEnforced)
	if err := s.Client.Get(s.t.Context(), s.key("guarded"), &appsv1.Deployment{}); !apierrs.IsNotFound(err) {
		s.t.Errorf("there is a proxy without the protection that was asked for: %v", err)
	}
	s.annotate("guarded", map[string]string{v1beta1.AnnotationAcceptNotEnforced: "authzConfig"})
	s.awaitPhase("guarded", "Ready")
	s.awaitCondition("guarded", v1beta1.ConditionSpecEnforced, "False", v1beta1.ReasonNotEnforced)
	s.annotate("guarded", map[string]string{v1beta1.AnnotationAcceptNotEnforced: ""})
	s.awaitPhase("guarded", "Failed")
	s.kubectl("delete", "mcpserver", "guarded", "--timeout=3m") // a server that failed is not at rest: each manager tries it
}

// shows checks the status as the API server keeps it, and that the state tells the same.
func (s *space) shows(name, phase, inMachine, ready string) {
	s.t.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
	s.read(name, live)
	status, _, _ := unstructured.NestedMap(live.Object, "status")
	if _, kept := status["machine"]; kept {
		s.t.Error("status.machine is kept: this is not ToolHive's CRD, and the test shows nothing")
	}
	if status["phase"] != phase || status["message"] == "" || status["url"] == "" || status["observedGeneration"] != live.GetGeneration() {
		s.t.Errorf("the status is %v, want phase %s, a message, a url and generation %d", status, phase, live.GetGeneration())
	}
	got := ""
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Ready" {
			got, _ = c["status"].(string)
		}
	}
	if got != ready {
		s.t.Errorf("condition Ready is %q, want %s", got, ready)
	}
	state, key := &v1alpha1.MachineState{}, types.NamespacedName{Name: v1alpha1.MachineStateName(mcpserver.MachineName, live.GetUID())}
	if err := s.Client.Get(s.t.Context(), key, state); err != nil {
		s.t.Fatal(err)
	}
	if state.Status.Phase != inMachine || len(state.Status.History) == 0 {
		s.t.Errorf("the state is in phase %q with %d transitions, want %s", state.Status.Phase, len(state.Status.History), inMachine)
	}
}

// looksWithoutWrites lets the manager look at a server at rest, and then a manager that has
// just been started: neither writes.
func (s *space) looksWithoutWrites(name string) {
	s.t.Helper()
	s.awaitIdle()
	begun := s.count(writes)
	for i := range 3 {
		s.touch(name, i)
	}
	s.awaitIdle()
	if sent := s.count(writes) - begun; sent != 0 {
		s.t.Errorf("3 looks at a server at rest sent %d writes", sent)
	}
	if err := s.manager.Stop(20 * time.Second); err != nil {
		s.t.Fatalf("the manager does not end as asked: %v", err)
	}
	if err := s.startManager(); err != nil {
		s.t.Fatal(err)
	}
	s.touch(name, 3)
	s.awaitIdle()
	if sent := s.count(writes); sent != 0 {
		s.t.Errorf("a manager that starts sent %d writes", sent)
	}
}

// installed are the CRDs that are installed, by name, with all their metadata.
func (s *space) installed() map[string]any {
	s.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := s.Client.List(s.t.Context(), list); err != nil {
		s.t.Fatal(err)
	}
	all := map[string]any{}
	for _, crd := range list.Items {
		all[crd.GetName()] = crd.Object
	}
	return all
}
