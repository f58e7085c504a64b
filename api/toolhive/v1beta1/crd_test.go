package v1beta1_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func readCRD(t *testing.T) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile("../../../charts/phasegate/files/crds/toolhive.stacklok.dev_mcpservers.yaml")
	if err != nil {
		t.Fatalf("read the generated CRD (make generate writes it): %v", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatalf("parse the generated CRD: %v", err)
	}
	return crd
}

// The constant is what the code cuts to; the CRD is what the API server holds it
// to. A write that is too long is refused as a whole.
func TestSetDisplayFitsTheCRD(t *testing.T) {
	status := readCRD(t).Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["status"].Properties
	if got := *status["message"].MaxLength; got != v1beta1.MaxMessageLength {
		t.Errorf("the CRD takes messages of %d characters, the constant says %d", got, v1beta1.MaxMessageLength)
	}
	var m v1beta1.MCPServer
	m.SetDisplay("Ready", strings.Repeat("a", v1beta1.MaxMessageLength+1))
	want := v1beta1.MCPServerStatus{Phase: "Ready", Message: strings.Repeat("a", v1beta1.MaxMessageLength-1) + "…"}
	if diff := cmp.Diff(want, m.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// What is made for one server must never be what is made for another: two names
// that both are accepted share no name of an object.
func TestNamesDoNotCollide(t *testing.T) {
	servers := []string{"foo", "foo-sa", "foo-runconfig", "foo-proxy-runner", "foo-proxy-2", "mcp-foo", "mcp"}
	owner := map[string]string{}
	for _, server := range servers {
		for kind, names := range map[string][]string{
			"Service":        {v1beta1.ProxyServiceName(server), v1beta1.BackendServiceName(server), v1beta1.HeadlessServiceName(server)},
			"ConfigMap":      {v1beta1.RunConfigName(server)},
			"ServiceAccount": {v1beta1.ProxyRBACName(server), v1beta1.BackendServiceAccountName(server)},
		} {
			for _, name := range names {
				key := kind + " " + name
				if other := owner[key]; other != "" {
					t.Errorf("%s belongs to both %s and %s", key, other, server)
				}
				owner[key] = server
			}
		}
	}
}
