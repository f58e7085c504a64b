package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
)

// fakeAPI is as much of an API server as a proxy asks, for measurements: a control plane
// beside them would be measured as well. Each StatefulSet that is applied is ready.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]map[string]any
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // a proxy that is gone
	}
	resources := func(group string, names ...string) {
		list := []map[string]any{}
		for i := 0; i < len(names); i += 2 {
			list = append(list, map[string]any{"name": names[i], "kind": names[i+1], "namespaced": true, "verbs": []string{"get", "patch"}})
		}
		answer(http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": list})
	}
	switch r.URL.Path {
	case "/api":
		answer(http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
		return
	case "/apis":
		version := map[string]any{"groupVersion": "apps/v1", "version": "v1"}
		answer(http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []map[string]any{{"name": "apps", "versions": []any{version}, "preferredVersion": version}}})
		return
	case "/api/v1":
		resources("v1", "services", "Service", "pods", "Pod")
		return
	case "/apis/apps/v1":
		resources("apps/v1", "statefulsets", "StatefulSet")
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

// lonely is a world without a cluster.
func lonely(t testing.TB, transport string) *world {
	t.Helper()
	api := httptest.NewServer(&fakeAPI{objects: map[string]map[string]any{}})
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, kubeconfig, strings.ReplaceAll(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"URL"}}]}`, "URL", api.URL))
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("POD_NAMESPACE", "here")
	w := &world{TB: t, logs: t.TempDir(), namespace: "here", config: runconfig.RunConfig{
		Name: "echo", Transport: transport, Host: "127.0.0.1", Port: freePort(t), TargetHost: "127.0.0.1", TargetPort: freePort(t),
		Owner: &runconfig.Owner{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"},
	}}
	w.address = fmt.Sprintf("http://127.0.0.1:%d", w.config.Port)
	return w
}
