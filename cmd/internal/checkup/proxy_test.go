package checkup

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/controllers/mcpserver"
)

// The rights that are asked about are those of the program that the manager runs.
func TestProxyOf(t *testing.T) {
	manager := func(args ...string) appsv1.Deployment {
		d := appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: args}}
		return d
	}
	for name, c := range map[string]struct {
		why      string
		managers []appsv1.Deployment
		want     mcpserver.Flavour
		fails    bool
	}{
		"none":     {"nothing tells", nil, "", true},
		"ours":     {"no flag is said for it", []appsv1.Deployment{manager("--controllers=mcpserver", "--proxy-image=a")}, mcpserver.Phasegate, false},
		"ToolHive": {"so says the chart", []appsv1.Deployment{manager("--proxy=toolhive", "--toolhive-proxy-image=a")}, mcpserver.ToolHive, false},
		"by image": {"as the manager takes it", []appsv1.Deployment{manager("--toolhive-proxy-image=a")}, mcpserver.ToolHive, false},
		"both":     {"one of them needs more", []appsv1.Deployment{manager(), manager("--proxy=toolhive")}, mcpserver.ToolHive, false},
	} {
		got, err := proxyOf(c.managers)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v; want %q: %s", name, got, err, c.want, c.why)
		}
	}
}
