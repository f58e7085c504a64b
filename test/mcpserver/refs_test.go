package mcpserver

import (
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// toolConfigCRD is a kind that others reconcile. That of MCPExternalAuthConfig is not installed,
// so that every test shows that the manager does without.
var toolConfigCRD = &unstructured.Unstructured{Object: map[string]any{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": map[string]any{"name": "mcptoolconfigs." + v1beta1.GroupVersion.Group},
	"spec": map[string]any{
		"group": v1beta1.GroupVersion.Group, "scope": "Namespaced",
		"names": map[string]any{"kind": "MCPToolConfig", "listKind": "MCPToolConfigList", "plural": "mcptoolconfigs", "singular": "mcptoolconfig"},
		"versions": []any{map[string]any{
			"name": v1beta1.GroupVersion.Version, "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	},
}}

func TestToolConfigHash(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	config := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"toolsFilter": []any{"fetch"}}}}
	config.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPToolConfig"))
	config.SetNamespace(s.ns)
	config.SetName("tools")

	s.create("fetch", accepting("toolConfigRef"), func(srv *v1beta1.MCPServer) { srv.Spec.ToolConfigRef = &v1beta1.LocalRef{Name: "tools"} })
	s.awaitCondition("fetch", v1beta1.ConditionToolConfigRefValidated, "False", v1beta1.ReasonToolConfigRefNotFound)

	if err := s.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition("fetch", v1beta1.ConditionToolConfigRefValidated, "True", v1beta1.ReasonToolConfigRefValid)
	first := s.get("fetch").Status.ToolConfigHash
	if first == "" {
		t.Fatal("no hash of a configuration that is there")
	}
	version := config.GetResourceVersion()
	s.read("tools", config)
	if got := config.GetResourceVersion(); got != version {
		t.Errorf("resourceVersion %s, was %s: the configuration is not ours to write", got, version)
	}

	config.Object["spec"] = map[string]any{"toolsFilter": []any{"fetch", "search"}}
	if err := s.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.until("fetch", "with another hash", func(srv *v1beta1.MCPServer) error {
		if now := srv.Status.ToolConfigHash; now == "" || now == first {
			return fmt.Errorf("hash %q, was %q", now, first)
		}
		return nil
	})

	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.ToolConfigRef = nil })
	s.awaitNoCondition("fetch", v1beta1.ConditionToolConfigRefValidated)
	if hash := s.get("fetch").Status.ToolConfigHash; hash != "" {
		t.Errorf("hash %q of nothing", hash)
	}
}

// A server that is refused comes to no step after the first, and yet its references are looked at;
// the group of one that runs stops nobody.
func TestReferencesOfARefusedServer(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	ref := func(name string) *apiextensionsv1.JSON {
		return &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "{\"name\":%q}", name)}
	}
	s.create("refused", func(srv *v1beta1.MCPServer) { srv.Spec.AuthServerRef, srv.Spec.GroupRef = ref("as"), ref("team") })
	s.create("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.GroupRef = ref("team") })

	s.awaitCondition("refused", v1beta1.ConditionAuthServerRefValidated, "False", v1beta1.ReasonAuthServerRefNotFound)
	s.awaitCondition("refused", v1beta1.ConditionGroupRefValidated, "False", v1beta1.ReasonGroupRefNotFound)
	s.awaitCondition("refused", v1beta1.ConditionSpecEnforced, "False", v1beta1.ReasonNotEnforced)
	s.awaitCondition("fetch", v1beta1.ConditionGroupRefValidated, "False", v1beta1.ReasonGroupRefNotFound)
	s.awaitCondition("fetch", "Ready", "True", v1beta1.ReasonReady)
	if phase := s.get("refused").Status.Phase; phase != "Failed" {
		t.Errorf("the refused server is %s, want Failed", phase)
	}

	// It is looked at each minute; but what it waits for is noticed when it comes.
	s.edit("refused", func(srv *v1beta1.MCPServer) { srv.Spec.ToolConfigRef = &v1beta1.LocalRef{Name: "late"} })
	s.awaitCondition("refused", v1beta1.ConditionToolConfigRefValidated, "False", v1beta1.ReasonToolConfigRefNotFound)
	config := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	config.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPToolConfig"))
	config.SetNamespace(s.ns)
	config.SetName("late")
	if err := s.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.awaitCondition("refused", v1beta1.ConditionToolConfigRefValidated, "True", v1beta1.ReasonToolConfigRefValid)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("noticed after %s", took)
	}
}
