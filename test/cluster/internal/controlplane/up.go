package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/test/cluster/internal/process"
)

// Options say what cluster is wanted.
type Options struct {
	// Dir is the home of the cluster.
	Dir string
	// Tools is the directory of the binaries.
	Tools string
	// Nodes is the number of simulated nodes.
	Nodes int
	// NoFsync lets etcd forget what it stored if the machine crashes, which
	// makes it much faster on slow disks.
	NoFsync bool
	// Without names servers to leave out, with or without "kube-".
	Without []string
	// APIServerArgs are flags for kube-apiserver besides, and win over our own.
	APIServerArgs []string
	// SkipMissing leaves out the servers whose binary is not there, instead of
	// refusing to start.
	SkipMissing bool
	// Kubeconfig names an existing cluster, which is then used instead of
	// starting one.
	Kubeconfig string
	// Out receives the progress, a line per server.
	Out io.Writer
}

// leavesOut tells whether the options exclude a server.
func (o Options) leavesOut(name string) bool {
	return slices.Contains(o.Without, name) || slices.Contains(o.Without, strings.TrimPrefix(name, "kube-"))
}

// Check refuses options that name no server, or leave out one that nothing
// works without.
func (o Options) Check() error {
	for _, name := range o.Without {
		switch "kube-" + strings.TrimPrefix(name, "kube-") {
		case controllerManager, scheduler, "kube-" + fakeNodes:
		default:
			return fmt.Errorf("cannot leave out %q: only controller-manager, scheduler and fakenodes can be", name)
		}
	}
	if o.Nodes < 0 {
		return fmt.Errorf("cannot make %d nodes", o.Nodes)
	}
	return nil
}

// launch is one attempt to bring a cluster up.
type launch struct {
	Options
	layout layout
	ports  ports
	begun  time.Time
	// started are the servers that run by now.
	started []*process.Child
	probe   *probe
}

// Up brings a cluster up and returns once pods can be created on it. A cluster
// that already runs in Dir is left alone; one that has died is removed first.
// If it fails it stops what it started, and leaves the logs.
func Up(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("make the home: %w", err)
	}
	l, unlock, err := open(o.Dir, o.Out)
	if err != nil {
		return err
	}
	defer unlock()
	state, found, err := examine(l)
	switch {
	case err != nil:
		return err
	case state == foreign:
		return fmt.Errorf("%s holds files that are not a cluster's: name another directory, or empty it", l.Home)
	case state == live:
		fmt.Fprintf(o.Out, "already running at %s: KUBECONFIG=%s\n", found.APIServer+found.Existing, l.kubeconfig())
		return nil
	case state == dead:
		fmt.Fprintf(o.Out, "a cluster died in %s: clearing it away\n", l.Home)
		if err := clearAway(l); err != nil {
			return err
		}
	}
	if o.Kubeconfig != "" {
		return adopt(l, o)
	}
	if o, err = withoutMissing(o); err != nil {
		return err
	}
	run := &launch{Options: o, layout: l, begun: time.Now()}
	if err := run.all(ctx); err != nil {
		return errors.Join(err, stopAll(l))
	}
	fmt.Fprintf(o.Out, "ready in %s: KUBECONFIG=%s\n", run.elapsed(), l.kubeconfig())
	return nil
}

// adopt makes a home for a cluster that exists. Its kubeconfig is linked, not
// copied, since the files it names may be relative to it.
func adopt(l layout, o Options) error {
	existing, err := filepath.Abs(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find %s: %w", o.Kubeconfig, err)
	}
	if _, err := os.Stat(existing); err != nil {
		return fmt.Errorf("find the kubeconfig: %w", err)
	}
	found := record{Existing: existing}
	if err := found.write(l); err != nil {
		return err
	}
	if err := os.Symlink(existing, l.kubeconfig()); err != nil {
		return fmt.Errorf("link the kubeconfig: %w", err)
	}
	fmt.Fprintf(o.Out, "using the existing cluster of %s: KUBECONFIG=%s\n", existing, l.kubeconfig())
	return nil
}

// withoutMissing checks that the binaries are there, and leaves out those that
// are not if the options allow it.
func withoutMissing(o Options) (Options, error) {
	for _, s := range servers(layout{}, ports{}, o) {
		_, err := os.Stat(filepath.Join(o.Tools, s.name))
		required := s.name == etcd || s.name == apiServer
		switch {
		case err == nil:
		case required || !o.SkipMissing:
			return o, fmt.Errorf("find %s: %w; build it with make tools", s.name, err)
		default:
			fmt.Fprintf(o.Out, "%-24s left out: %s has none\n", s.name, o.Tools)
			o.Without = append(o.Without, s.name)
		}
	}
	return o, nil
}

// all starts everything, in the order in which one part needs another.
func (u *launch) all(ctx context.Context) error {
	if err := u.prepare(); err != nil {
		return err
	}
	wanted := servers(u.layout, u.ports, u.Options)
	// The API server waits for etcd by itself; the rest would only retry.
	if err := u.start(wanted[:2]...); err != nil {
		return err
	}
	if err := u.await(ctx, etcd+", "+apiServer, u.probe.serving); err != nil {
		return err
	}
	if err := u.start(wanted[2:]...); err != nil {
		return err
	}
	controlled := !u.leavesOut(controllerManager)
	if controlled {
		if err := u.await(ctx, controllerManager, u.probe.controlling); err != nil {
			return err
		}
	}
	if u.leavesOut(fakeNodes) {
		return nil
	}
	return u.await(ctx, fmt.Sprintf("%s (%d)", fakeNodes, u.Nodes), u.probe.nodesReady(u.Nodes, controlled))
}

// prepare writes everything that the servers read.
func (u *launch) prepare() error {
	free, err := freePorts(3)
	if err != nil {
		return err
	}
	u.ports = ports{etcdClient: free[0], etcdPeer: free[1], apiServer: free[2]}
	found := record{APIServer: u.ports.apiServerURL()}
	for _, s := range servers(u.layout, u.ports, u.Options) {
		found.Servers = append(found.Servers, s.name)
	}
	if err := found.write(u.layout); err != nil {
		return err
	}
	if err := writeCredentials(u.layout, u.ports.apiServerURL()); err != nil {
		return err
	}
	u.probe, err = newProbe(u.layout, u.ports.apiServerURL())
	return err
}

// start starts servers without waiting for them.
func (u *launch) start(wanted ...server) error {
	for _, s := range wanted {
		child, err := u.layout.Start(s.name, filepath.Join(u.Tools, s.name), s.args...)
		if err != nil {
			return err
		}
		u.started = append(u.started, child)
	}
	return nil
}

// await waits until met returns no error, and fails as soon as a server ends.
func (u *launch) await(ctx context.Context, what string, met func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		err := met(ctx)
		if err == nil {
			fmt.Fprintf(u.Out, "%-28s %s\n", what, u.elapsed())
			return nil
		}
		if child := u.firstExited(); child != nil {
			return fmt.Errorf("%s ended while the cluster came up; the end of %s:\n%s",
				child.Name, u.layout.LogFile(child.Name), u.layout.Tail(child.Name, 15))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w); the logs are in %s", what, ctx.Err(), err, u.layout.path("logs"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// firstExited returns a server that has ended, or nil.
func (u *launch) firstExited() *process.Child {
	for _, child := range u.started {
		select {
		case <-child.Exited:
			return child
		default:
		}
	}
	return nil
}

func (u *launch) elapsed() string {
	return fmt.Sprintf("%.1fs", time.Since(u.begun).Seconds())
}

// open finds a home that exists and holds it against other programs until unlock.
func open(dir string, out io.Writer) (l layout, unlock func(), err error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return l, nil, fmt.Errorf("find %s: %w", dir, err)
	}
	unlock, err = process.Lock(absolute, func() {
		fmt.Fprintf(out, "waiting for another program that works on %s\n", absolute)
	})
	return layout{process.Home(absolute)}, unlock, err
}
