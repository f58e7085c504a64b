// Command proxyrunner is what runs in the pods of an MCPServer's proxy: it makes
// the MCP server and stands between it and its clients. It holds flags and wiring.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/cmd/internal/release"
)

func main() {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "proxyrunner:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	debug := os.Getenv("TOOLHIVE_DEBUG") == "true" || os.Getenv("TOOLHIVE_DEBUG") == "1"
	root := &cobra.Command{
		Use:           "proxyrunner",
		Short:         "The proxy in front of an MCP server on Kubernetes",
		Long:          "The proxy in front of an MCP server on Kubernetes. The operator starts it; see `proxyrunner run --help`.",
		Version:       release.Current().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().BoolVar(&debug, "debug", debug, "log more (also TOOLHIVE_DEBUG=true)")
	root.AddCommand(runCommand(&debug))
	return root
}

// newLog writes JSON lines, and takes over what libraries log.
func newLog(debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler))
	return slog.New(handler)
}
