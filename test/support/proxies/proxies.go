// Package proxies plays the proxies of MCP servers in process: for each proxy
// Deployment whose pods run it applies the backend, as the pods would if anything
// were in them. Nothing is proxied.
//
// It knows what a proxy reads (its arguments, its file) and leaves what to apply to
// controllers/mcpserver/backend. Tests that need real processes have test/mcpserver.
package proxies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
)

// podPatchFlag is how a proxy is told what is laid under the backend's pods.
const podPatchFlag = "--k8s-pod-patch="

// Start does once what each pod of a proxy does when it starts: it applies the
// backend. It may be called again, and for a Deployment without pods, which is
// passed over.
func Start(ctx context.Context, c client.Client, proxy *appsv1.Deployment) error {
	if !running(proxy) {
		return nil
	}
	cfg, err := configOf(ctx, c, proxy)
	if err == nil {
		_, err = backend.Deploy(ctx, c, cfg)
	}
	if err != nil {
		return fmt.Errorf("play the proxy %s/%s: %w", proxy.Namespace, proxy.Name, err)
	}
	return nil
}

// running is true when a pod of the newest template runs.
func running(proxy *appsv1.Deployment) bool {
	s := proxy.Status
	return s.ObservedGeneration >= proxy.Generation && s.UpdatedReplicas > 0 && s.ReadyReplicas > 0
}

func configOf(ctx context.Context, c client.Client, proxy *appsv1.Deployment) (backend.Config, error) {
	cfg := backend.Config{Namespace: proxy.Namespace, Run: &runconfig.RunConfig{}}
	template := proxy.Spec.Template
	i := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1beta1.ProxyContainer })
	if i < 0 {
		return cfg, fmt.Errorf("it has no container %s", v1beta1.ProxyContainer)
	}
	args := template.Spec.Containers[i].Args
	if len(args) == 0 {
		return cfg, fmt.Errorf("its container %s has no arguments", v1beta1.ProxyContainer)
	}
	cfg.Image = args[len(args)-1]
	for _, arg := range args {
		if patch, found := strings.CutPrefix(arg, podPatchFlag); found {
			cfg.PodPatch = []byte(patch)
		}
	}
	file := &corev1.ConfigMap{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: proxy.Namespace, Name: v1beta1.RunConfigName(proxy.Name)}, file); err != nil {
		return cfg, err
	}
	if err := json.Unmarshal([]byte(file.Data[v1beta1.RunConfigFile]), cfg.Run); err != nil {
		return cfg, fmt.Errorf("read %s of ConfigMap %s: %w", v1beta1.RunConfigFile, file.Name, err)
	}
	own, _ := freeze.Override(cfg.Run.MCPServerGeneration, template.Annotations[v1beta1.AnnotationGeneration])
	cfg.Stale = cfg.Run.MCPServerGeneration > own
	cfg.Run.MCPServerGeneration = own
	return cfg, nil
}
