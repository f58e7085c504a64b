package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/dashboard"
	"github.com/phasegate/phasegate/fsm"
)

func dashboardCommand(s streams) *cobra.Command {
	var port int
	var noOpen bool
	var file string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show in a browser where migrations stand, live",
		Long: `Show in a browser where migrations stand: the machine with the present phase,
progress of each kind, the clock of the lock, closed ways, conflicts, what to do
next, and the history. The page changes by itself and changes nothing: it is made
by this program, which only reads DatastoreMigrations and MachineStates, with your rights.

It is served on 127.0.0.1 only, to requests that ask for it under that address or
as localhost. Other users of this computer can read it, too, while it is served.
Ctrl-C ends it.

Exit codes: 0 ended by Ctrl-C, 2 usage, or it could not be served.`,
		Example: `  kubectl phasegate dashboard
  kubectl phasegate dashboard --context production --port 8080 --no-open`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	at := clusterFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "port to serve on; 0 is any that is free")
	f.BoolVar(&noOpen, "no-open", false, "print the address and open no browser")
	f.StringVarP(&file, "file", "f", "datastore-migration", "machine file that the manager runs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		machine, err := chooseMachine(s, file, "")
		if err != nil {
			return err
		}
		return serveDashboard(cmd.Context(), s, at, machine, port, !noOpen)
	}
	return cmd
}

func serveDashboard(ctx context.Context, s streams, at *cluster, m *fsm.Machine, port int, open bool) error {
	cfg, err := at.rest()
	if err != nil {
		return err
	}
	scheme := apiruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	objects, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve on loopback: %w: choose another --port", err)
	}
	url := "http://" + listener.Addr().String() + "/"
	fmt.Fprintln(s.out, url)
	fmt.Fprintln(s.err, "Serving until Ctrl-C.")
	if open {
		if err := openBrowser(ctx, url); err != nil {
			fmt.Fprintln(s.err, "no browser was opened:", err)
		}
	}
	feed := dashboard.NewFeed(objects)
	server := dashboard.Server{Machine: m, Cluster: cfg.Host, Look: feed.Snapshot, Now: time.Now}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return feed.Run(ctx) })
	both.Go(func() error { return server.Serve(ctx, listener) })
	return both.Wait()
}

// openBrowser asks the desktop to show a page.
func openBrowser(ctx context.Context, url string) error {
	command := map[string]string{"linux": "xdg-open", "darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"}[runtime.GOOS]
	if command == "" {
		return errors.New("which program does that is not known for " + runtime.GOOS + ": open it yourself")
	}
	words := append(strings.Fields(command), url)
	return exec.CommandContext(ctx, words[0], words[1:]...).Start()
}
