// Command fakeapiserver runs the stand-in for Calico's aggregated API server until it is interrupted. It
// prints one line when it serves and one when kube-apiserver sends projectcalico.org/v3 to it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fakeapiserver:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing to undo that the exit does not
	}
}

type options struct {
	kubeconfig string
	kindsFile  string
	listen     string
	register   bool
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "fakeapiserver",
		Short: "Serve projectcalico.org/v3 from crd.projectcalico.org/v1 objects",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "cluster that holds the v1 objects")
	cmd.Flags().StringVar(&o.kindsFile, "kinds-file", "", "registry of kinds instead of the built-in one")
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:0", "address to serve on; port 0 picks a free one")
	cmd.Flags().BoolVar(&o.register, "register", true, "create the Service and the APIService, and wait until it is available")
	return cmd
}

func run(ctx context.Context, o options) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", o.kubeconfig, err)
	}
	reg, err := registry(o.kindsFile)
	if err != nil {
		return err
	}
	srv, err := fakeapiserver.Listen(cfg, reg, o.listen)
	if err != nil {
		return err
	}
	fmt.Printf("serving projectcalico.org/v3 on port %d\n", srv.Port())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return srv.Serve(ctx) })
	if o.register {
		g.Go(func() error {
			if err := fakeapiserver.Register(ctx, cfg, srv.Port(), srv.CABundle()); err != nil {
				return err
			}
			fmt.Println("available through kube-apiserver")
			return nil
		})
	}
	return g.Wait()
}

func registry(file string) (*resources.Registry, error) {
	if file == "" {
		return resources.Default(), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the registry of kinds: %w", err)
	}
	return resources.LoadRegistry(file, data)
}
