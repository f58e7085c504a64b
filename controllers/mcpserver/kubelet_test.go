package mcpserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/test/support/podrunner"
)

// What the kubelet makes of the proxy's arguments and variables is what the spec says, whatever looks like a variable in it.
func TestTheKubeletExpandsNothingOfTheSpec(t *testing.T) {
	for name, c := range map[string]struct{ why, text string }{
		"a variable of the proxy":    {"it is that of the server's container, if of any", `$(HOME)`},
		"a secret of the proxy":      {"it would be in the StatefulSet for all to read", `$(TOOLHIVE_OIDC_CLIENT_SECRET)`},
		"a variable that breaks it":  {"the template would be no JSON", `$(QUOTED)`},
		"an escaped variable":        {"the server's container has the right to the escape", `$$(HOME) $$$$`},
		"dollar signs":               {"a shell's, or an amount", `$ $x ${HOME} $( $`},
		"an empty name":              {"the kubelet reads it as one", `$()`},
		"one after another":          {"each is taken as it is", `$($(HOME))$(HOME)`},
		"a dollar sign before a end": {"the next argument is another", `cost$`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := fetch(func(s *v1beta1.MCPServerSpec) {
				s.Image = "example.org/" + c.text
				s.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{Env: []v1beta1.EnvVar{
					{Name: "AT_HOME", Value: "$(HOME)/cache"}, {Name: "QUOTED", Value: `"`},
				}}}
			})
			peers := &toolhive.Proxy{Env: []corev1.EnvVar{{Name: "OTEL_RESOURCE_ATTRIBUTES", Value: c.text}}}
			pods, err := Settings{}.proxyPods(srv, `{"note":"`+c.text+`"}`, "sum", peers)
			if err != nil {
				t.Fatal(err)
			}
			type seen struct {
				Args                 []string
				Attributes, Override string
			}
			var got seen
			vars := []corev1.EnvVar{{Name: "TOOLHIVE_OIDC_CLIENT_SECRET", Value: "sesame"}, {Name: "HOME", Value: "/tmp"}}
			for _, v := range pods.Spec.Containers[0].Env {
				v.Value = podrunner.Expand(v.Value, vars)
				vars = append(vars, v)
				switch v.Name {
				case "OTEL_RESOURCE_ATTRIBUTES":
					got.Attributes = v.Value
				case "AT_HOME":
					got.Override = v.Value
				}
			}
			for _, arg := range pods.Spec.Containers[0].Args {
				got.Args = append(got.Args, podrunner.Expand(arg, vars))
			}
			want := seen{
				Args:       []string{"run", `--k8s-pod-patch={"note":"` + c.text + `"}`, "example.org/" + c.text},
				Attributes: c.text,
				Override:   "/tmp/cache", // a variable of a container, as anywhere: those of the proxy are the user's to use there
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
