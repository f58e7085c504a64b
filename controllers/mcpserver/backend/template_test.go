package backend

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// The variables of the server are those that ToolHive's proxy gives it, but where the user says otherwise.
func TestVariables(t *testing.T) {
	const patched = `{"spec":{"containers":[{"name":"mcp","env":[{"name":"MCP_HOST","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}]}]}}`
	podIP := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}
	for name, c := range map[string]struct {
		why, transport, patch string
		file                  map[string]string
		targetHost            string
		want                  []corev1.EnvVar
	}{
		"http": {"a server whose own default is 127.0.0.1 would not be reached", v1beta1.TransportStreamableHTTP, "", map[string]string{"A": "1"}, "",
			[]corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "MCP_HOST"}}},
		"sse": {"the same", v1beta1.TransportSSE, "", nil, "", []corev1.EnvVar{{Name: "MCP_HOST"}}},
		"a host in the file": {"two proxies that call it at two addresses would replace its pods in turn", v1beta1.TransportSSE, "", nil, "10.0.0.1",
			[]corev1.EnvVar{{Name: "MCP_HOST"}}},
		"of the spec": {"the user has said where it listens", v1beta1.TransportSSE, "", map[string]string{"MCP_HOST": "::"}, "",
			[]corev1.EnvVar{{Name: "MCP_HOST", Value: "::"}}},
		"of the pod template": {"the same", v1beta1.TransportStreamableHTTP, patched, nil, "", []corev1.EnvVar{{Name: "MCP_HOST", ValueFrom: podIP}}},
		"stdio":               {"it listens nowhere", v1beta1.TransportStdio, "", map[string]string{"A": "1"}, "", []corev1.EnvVar{{Name: "A", Value: "1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := podTemplate(Config{PodPatch: []byte(c.patch), Run: &runconfig.RunConfig{
				Name: "fetch", Transport: c.transport, TargetPort: 8080, TargetHost: c.targetHost, EnvVars: c.file}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, template.Spec.Containers[0].Env); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
