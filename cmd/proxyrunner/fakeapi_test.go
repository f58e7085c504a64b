package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/test/support/mcp/container"
	"github.com/phasegate/phasegate/test/support/mcp/kubelet"
)

// fakeAPI is as much of an API server as a proxy asks, for measurements: a control plane
// beside them would be measured as well. Each StatefulSet that is applied is ready.
type fakeAPI struct {
	// stdio is the server in the only pod; nil if there is none.
	stdio *container.Container

	mu      sync.Mutex
	objects map[string]map[string]any
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/pods/echo-0/attach") {
		kubelet.Attach(w, r, f.stdio)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // a proxy that is gone
	}
	if body := f.always()[r.URL.Path]; body != nil {
		answer(http.StatusOK, body)
		return
	}
	if r.Method == http.MethodPatch {
		object := map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&object) // what is wrong there shows
		metadata, _ := object["metadata"].(map[string]any)
		if metadata == nil {
			answer(http.StatusBadRequest, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400})
			return
		}
		metadata["uid"], metadata["resourceVersion"], metadata["generation"] = "1", "2", 1
		if object["kind"] == "StatefulSet" {
			object["status"] = map[string]any{"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
		}
		f.objects[r.URL.Path] = object
	}
	if object := f.objects[r.URL.Path]; object != nil {
		answer(http.StatusOK, object)
		return
	}
	answer(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
}

// always is discovery, and the list of pods.
func (f *fakeAPI) always() map[string]any {
	apps := map[string]any{"groupVersion": "apps/v1", "version": "v1"}
	all := map[string]any{
		"/api":          map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
		"/apis":         map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []map[string]any{{"name": "apps", "versions": []any{apps}, "preferredVersion": apps}}},
		"/api/v1":       resourceList("v1", "services", "Service", "pods", "Pod"),
		"/apis/apps/v1": resourceList("apps/v1", "statefulsets", "StatefulSet"),
	}
	if f.stdio != nil {
		all["/api/v1/namespaces/here/pods"] = onePod()
	}
	return all
}

func resourceList(group string, names ...string) map[string]any {
	list := []map[string]any{}
	for i := 0; i < len(names); i += 2 {
		list = append(list, map[string]any{"name": names[i], "kind": names[i+1], "namespaced": true, "verbs": []string{"get", "patch"}})
	}
	return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": list}
}

// onePod is the list of the pods of the server.
func onePod() corev1.PodList {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "echo-0",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "echo", UID: "1", Controller: new(true)}}}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod}}
}

// lonely is a world without a cluster.
func lonely(t testing.TB, transport string) *world { return lonelyWith(t, transport, nil) }

// lonelyWith is lonely with a server that speaks over its standard input and output.
func lonelyWith(t testing.TB, transport string, stdio *container.Container) *world {
	t.Helper()
	api := httptest.NewServer(&fakeAPI{objects: map[string]map[string]any{}, stdio: stdio})
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, kubeconfig, strings.ReplaceAll(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"URL"}}]}`, "URL", api.URL))
	return worldIn(t, kubeconfig, "here", transport, "1")
}
