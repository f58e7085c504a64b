package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/dashboard"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
	"github.com/phasegate/phasegate/fsm"
)

func dashboardCommand(s streams) *cobra.Command {
	var port int
	var noOpen bool
	var files []string
	cmd := &cobra.Command{
		Use:   "dashboard [KIND]",
		Short: "Show objects live in a browser",
		Long: `Show the objects of a kind live in a browser: the machine with the present phase, closed
exits, what to do next, and the history. Without KIND, it shows migrations, also with the
progress of each kind, the time locked, and conflicts. The page is read-only: this program
reads the objects, MachineStates and MachineDefinitions as you.

It is served on 127.0.0.1, for requests to that address or localhost only. Other users of
this computer can read it too. Ctrl-C ends it.

Exit codes: 0 ended by Ctrl-C, 2 error.`,
		Example: `  kubectl phasegate dashboard
  kubectl phasegate dashboard databaserestore -n bookshop
  kubectl phasegate dashboard --context production --port 8080 --no-open`,
		Args: cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeKinds(at)
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "port to serve on; 0 means any free port")
	f.BoolVar(&noOpen, "no-open", false, "print the address, open no browser")
	f.StringSliceVarP(&files, "file", "f", nil, "machine file; default: the published one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := newDrivers(cmd.Context(), s, at, files, strings.Join(args, ""))
		if err != nil {
			return err
		}
		return serveDashboard(cmd.Context(), s, at, d, port, !noOpen)
	}
	return cmd
}

func serveDashboard(ctx context.Context, s streams, at *cluster, d *drivers, port int, open bool) error {
	cfg, err := at.rest()
	if err != nil {
		return err
	}
	objects, err := client.NewWithWatch(cfg, client.Options{Scheme: datastoremigration.NewScheme()})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve on loopback: %w: choose another --port", err)
	}
	url := "http://" + listener.Addr().String() + "/"
	say(s.out, "%s", url)
	say(s.err, "Serving until Ctrl-C.")
	if open {
		if err := openBrowser(ctx, url); err != nil {
			say(s.err, "no browser was opened: %v", err)
		}
	}
	of := dashboard.Of{Kind: d.now.kind, Machine: d.now.name}
	if d.known.within(d.now) != "" {
		of.Namespace = at.only()
	}
	feed := dashboard.NewFeed(objects, of)
	server := dashboard.Server{Kind: of.Kind.Kind, Machine: d.of, Caller: d.known.caller, Cluster: cfg.Host, Look: feed.Snapshot, Now: time.Now}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return feed.Run(ctx) })
	both.Go(func() error { return d.follow(ctx) })
	both.Go(func() error { return server.Serve(ctx, listener) })
	return both.Wait()
}

// reloadEvery is how soon a changed machine file is on the page.
const reloadEvery = 3 * time.Second

// drivers answers the machine that drives an object, also after a change of its file.
type drivers struct {
	known *known

	mu  sync.Mutex
	now candidate
	// any is a machine of the name for objects whose own cannot be read by this program.
	any      *fsm.Machine
	compiled map[definitions.Published]*fsm.Machine
}

// newDrivers are those of a kind; of migrations where none is given.
func newDrivers(ctx context.Context, s streams, at *cluster, files []string, kind string) (*drivers, error) {
	k, err := at.machines(ctx, s, files)
	if err != nil {
		return nil, err
	}
	now, machine, err := k.driving(s, cmp.Or(kind, migrationKind.Kind))
	return &drivers{known: k, now: now, any: machine, compiled: map[definitions.Published]*fsm.Machine{}}, err
}

// follow reads the published machines again and again. What cannot be read stays as it was.
func (d *drivers) follow(ctx context.Context) error {
	if len(d.now.published) == 0 {
		return nil
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if now, err := d.known.anew(ctx, d.now); err == nil {
			d.mu.Lock()
			d.now = now
			d.mu.Unlock()
		}
	}, reloadEvery)
	return nil
}

func (d *drivers) of(o live.Object) *fsm.Machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := definitions.Driver(d.now.published, o.Manager, o.Machine.Revision)
	if !ok {
		return d.any
	}
	m, known := d.compiled[p]
	if !known {
		m, _ = d.now.machine(o)
		d.compiled[p] = m // also that it cannot be read
	}
	if m == nil {
		return d.any
	}
	return m
}

func openBrowser(ctx context.Context, url string) error {
	command := map[string]string{"linux": "xdg-open", "darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"}[runtime.GOOS]
	if command == "" {
		return errors.New("no program is known for that on " + runtime.GOOS + ": open the address yourself")
	}
	words := append(strings.Fields(command), url)
	return exec.CommandContext(ctx, words[0], words[1:]...).Start()
}
