package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is where live objects are; its flags are those of kubectl.
type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func clusterFlags(cmd *cobra.Command) *cluster {
	c := &cluster{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	flags := cmd.Flags()
	flags.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; default: $KUBECONFIG, then ~/.kube/config")
	flags.StringVar(&c.overrides.CurrentContext, "context", "", "context of the kubeconfig file")
	flags.StringVarP(&c.overrides.Context.Namespace, "namespace", "n", "", "namespace of the object")
	return c
}

// connect answers a client, and a mapper that knows short names as kubectl does.
func (c *cluster) connect() (client.Client, meta.RESTMapper, error) {
	cfg, err := c.rest()
	if err != nil {
		return nil, nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	cached := memory.NewMemCacheClient(found)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	objects, err := client.New(cfg, client.Options{Mapper: mapper})
	return objects, mapper, err
}

// rest reaches the cluster as the flags say.
func (c *cluster) rest() (*rest.Config, error) {
	cfg, err := c.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w: give --kubeconfig", err)
	}
	cfg.UserAgent = "kubectl-phasegate/" + version
	return cfg, nil
}

// namespace is that of the flag, else of the context.
func (c *cluster) namespace() (string, error) {
	name, _, err := c.config().Namespace()
	return name, err
}

func (c *cluster) config() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}
