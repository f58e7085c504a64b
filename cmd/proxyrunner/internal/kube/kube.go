// Package kube finds the API server and the namespace of the pod that this runs in.
package kube

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceFile is where a pod is told its own.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Access is what a proxy needs of its cluster.
type Access struct {
	Config *rest.Config
	// Client reads from the API server, without a cache.
	Client client.Client
	// Namespace is that of the pod: its file, POD_NAMESPACE, that of the kubeconfig,
	// or "default".
	Namespace string
}

// Names are those by which the cluster knows a Service of the namespace where that is not plain from the name: its
// short one, and the end of all names if the cluster is not called cluster.local, which begins with a dot.
func (a *Access) Names(service string) []string {
	names := []string{service + "." + a.Namespace}
	search, _ := os.ReadFile("/etc/resolv.conf") // outside of a pod it names no cluster
	for _, word := range strings.Fields(string(search)) {
		if domain, is := strings.CutPrefix(word, a.Namespace+".svc."); is {
			names = append(names, ".svc."+domain)
		}
	}
	return names
}

// Find uses the ServiceAccount of the pod, else KUBECONFIG. It sends nothing.
func Find() (*Access, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		config, err = loader.ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w: run in a pod with a ServiceAccount, or set KUBECONFIG", err)
	}
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	own, _ := os.ReadFile(namespaceFile) // outside of a pod there is none
	configured, _, err := loader.Namespace()
	if err != nil {
		configured = "" // no kubeconfig, or one that is not used
	}
	namespace := cmp.Or(strings.TrimSpace(string(own)), os.Getenv("POD_NAMESPACE"), configured, "default")
	return &Access{Config: config, Client: c, Namespace: namespace}, nil
}
