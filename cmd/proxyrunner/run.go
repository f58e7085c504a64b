package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/config"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/kube"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/supervise"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// timeoutEnv is how long a stdio server may take for an answer, e.g. 90s.
const timeoutEnv = v1beta1.EnvRequestTimeout

type options struct {
	image    string
	args     []string // nil leaves those of the file
	podPatch string
	// generation is that of the pod, as text.
	generation string
	// openShift is v1beta1.EnvOpenShift, as text.
	openShift string
	timeout   time.Duration
	log       *slog.Logger
}

func runCommand(debug *bool) *cobra.Command {
	o := options{generation: os.Getenv(v1beta1.EnvGeneration), openShift: os.Getenv(v1beta1.EnvOpenShift)}
	cmd := &cobra.Command{
		Use:   "run [flags] IMAGE [-- ARG...]",
		Short: "Deploy the MCP server IMAGE in this namespace, and serve its clients",
		Long: `Creates a StatefulSet, and Services for a server with HTTP, and then serves clients. It
listens at once: GET /health shows its progress, and a client that connects too early gets
503 with the reason.

The configuration is the first of these files that exists:
  ` + strings.Join(config.Paths(), "\n  ") + `

Environment:
  ` + v1beta1.EnvGeneration + `        generation of this pod; overrides the file's
  ` + timeoutEnv + `  time for an answer of a stdio server, or of an sse server
                                  to a client of streamable-http (default 60s)
  ` + front.OriginsEnv + `  allowed origins of web pages, comma-separated;
                                  * for all. Pages of the client's own machine
                                  are always allowed
  ` + v1beta1.EnvOpenShift + `              true leaves the server's user and groups to OpenShift
  ` + front.HostsEnv + `    names by which clients reach the proxy from outside,
                                  comma-separated; * for any. Addresses and names
                                  of the cluster are always allowed
  POD_NAMESPACE                   namespace, without a ServiceAccount
  KUBECONFIG                      API server, outside of a pod
  TOOLHIVE_DEBUG                  as --debug

Unknown flags are ignored.`,
		Example: `  proxyrunner run example.org/fetch:1
  proxyrunner run --k8s-pod-patch='{"spec":{"serviceAccountName":"fetch"}}' example.org/fetch:1 -- --verbose`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return fmt.Errorf("run: no IMAGE: proxyrunner run [flags] IMAGE [-- ARG...]")
			}
			return nil
		},
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.log = newLog(*debug)
			o.image = args[0]
			if len(args) > 1 {
				o.args = args[1:]
			}
			var warning string
			if o.timeout, warning = timeout(os.Getenv(timeoutEnv)); warning != "" {
				o.log.Warn(warning)
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.podPatch, "k8s-pod-patch", "", "pod template of the MCP server as `JSON`, merged over the defaults; container mcp is the server")
	return cmd
}

// timeout is 0, for the default, if nothing is said, and with a warning if that cannot be used: as with the peer's proxy.
// It protects nobody, so a server that ran there is not to stop for it.
func timeout(text string) (d time.Duration, warning string) {
	if text == "" {
		return 0, ""
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Sprintf("%s=%q is not a duration such as 90s: the default is taken", timeoutEnv, text)
	}
	return d, ""
}

// run serves until ctx is done, and then until what is under way has ended.
func run(ctx context.Context, o options) error {
	first, err := o.load()
	if err != nil {
		return err
	}
	if first.Warning != "" {
		o.log.Warn(first.Warning)
	}
	access, err := kube.Find()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(first.Run.Host, strconv.Itoa(int(first.Run.Port))))
	if err != nil {
		return fmt.Errorf("listen where host and port of %s say: %w", first.Path, err)
	}
	o.log.Info("listening", "address", listener.Addr().String(), "server", first.Run.Name, "namespace", access.Namespace,
		"transport", first.Run.Transport, "generation", first.Run.MCPServerGeneration, "file", first.Path)

	f := front.New(first.Run.Transport)
	f.ReadWithin(first.ReadTime)
	f.AllowOrigins(listOf(front.OriginsEnv))
	f.AllowHosts(listOf(front.HostsEnv), access.Names(v1beta1.ProxyServiceName(first.Run.Name)))
	f.TrustForwarded(first.Run.TrustProxyHeaders)
	s := &supervise.Supervisor{
		Deploy: func(ctx context.Context) (backend.Result, error) { return o.deploy(ctx, access) },
		Await: func(ctx context.Context) error {
			return backend.Await(ctx, access.Client, access.Namespace, first.Run.Name)
		},
		Connect:   o.connector(first, access),
		Exclusive: first.Run.Transport == v1beta1.TransportStdio,
		Front:     f, Pace: supervise.Usual, Log: o.log,
	}
	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	supervised := make(chan struct{})
	go func() { defer close(supervised); s.Run(ctx, serving) }()
	end := front.UsualEnding
	end.CutStreams = first.Run.Transport == v1beta1.TransportStreamableHTTP // a bridge knows itself which are idle
	err = front.Serve(ctx, listener, f, end)
	served()
	if ctx.Err() != nil {
		<-supervised
		o.log.Info("ended")
	}
	return err
}

// listOf reads a variable with commas or spaces in it.
func listOf(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}

func (o options) load() (*config.Loaded, error) {
	l, err := config.Load(config.Paths(), o.generation)
	if err == nil && o.args != nil {
		l.Run.CmdArgs = o.args
	}
	return l, err
}

// deploy applies what the file says now: to put back what it said when the proxy
// started would undo what was changed since.
func (o options) deploy(ctx context.Context, access *kube.Access) (backend.Result, error) {
	l, err := o.load()
	if err != nil {
		return backend.Result{}, err
	}
	return backend.Deploy(ctx, access.Client, backend.Config{
		Namespace: access.Namespace, Run: l.Run, Image: o.image, PodPatch: []byte(o.podPatch), Stale: l.Stale,
		AnyUser: strings.EqualFold(o.openShift, "true"),
	})
}
