// Command fakenodes pretends to be the kubelets of a few nodes, so that a
// cluster without containers has nodes that are Ready and pods that run.
//
// It does as little as its users see: nodes are Ready and their leases are
// renewed; a pod bound to one of them is Running and Ready at once, with an
// address; a pod that is to be deleted is gone at once, whatever its grace
// period. Nothing is ever executed, so nothing exits, fails, is probed, logs
// or answers, a Job never completes, and the addresses are routed nowhere.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the cluster to make nodes on")
	count := flag.Int("nodes", 3, "how many nodes to make")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *count); err != nil {
		fmt.Fprintf(os.Stderr, "fakenodes: %v\n", err)
		os.Exit(1)
	}
}

// run keeps the nodes alive until the context ends.
func run(ctx context.Context, kubeconfig string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // a test wants its pods now
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	nodes := map[string]int{}
	for i := range count {
		nodes[fmt.Sprintf("node-%d", i)] = i
	}
	for name, index := range nodes {
		go keepNode(ctx, client, name, index, version.String())
	}
	return runPods(ctx, client, nodes)
}
