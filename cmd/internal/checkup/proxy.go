package checkup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/mcpserver"
)

// managerLabels are those of the Deployment that the chart makes for MCP servers.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/part-of": "phasegate", "app.kubernetes.io/component": MCPServer}

// SetProxy makes Proxy what is said or, of nothing, what the manager runs. The note is for a
// person, where neither tells.
func (o *Options) SetProxy(ctx context.Context, said string) (note string, err error) {
	o.Proxy = mcpserver.Flavour(said)
	switch {
	case said != "" && !slices.Contains(mcpserver.Flavours, o.Proxy):
		return "", fmt.Errorf("--proxy: %q is not known: write one of %v", said, mcpserver.Flavours)
	case said != "" || !slices.Contains(o.Controllers, MCPServer):
		return "", nil
	}
	if o.Proxy, err = proxyInUse(ctx, o.Config); err != nil {
		return fmt.Sprintf("which proxies the manager runs cannot be seen (%v): permissions for ToolHive's are checked only with --proxy=toolhive", err), nil
	}
	return "", nil
}

// proxyInUse is which program the proxies of MCP servers run, as the flags of the managers
// tell that the chart has deployed. The error is why that cannot be told.
func proxyInUse(ctx context.Context, cfg *rest.Config) (mcpserver.Flavour, error) {
	c, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return "", fmt.Errorf("make the client: %w", err)
	}
	var managers appsv1.DeploymentList
	if err := c.List(ctx, &managers, managerLabels); err != nil {
		return "", fmt.Errorf("list the Deployments of managers: %w", err)
	}
	return proxyOf(managers.Items)
}

// proxyOf is ToolHive's if any manager runs it: it needs more rights.
func proxyOf(managers []appsv1.Deployment) (mcpserver.Flavour, error) {
	if len(managers) == 0 {
		return "", errors.New("no Deployment of the chart is there")
	}
	found := mcpserver.Phasegate
	for _, m := range managers {
		for _, container := range m.Spec.Template.Spec.Containers {
			for _, arg := range append(container.Command, container.Args...) {
				if arg == "--proxy="+string(mcpserver.ToolHive) || strings.HasPrefix(arg, "--toolhive-proxy-image=") {
					found = mcpserver.ToolHive
				}
			}
		}
	}
	return found, nil
}
