package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/fsm"
)

func approveCommand(s streams) *cobra.Command {
	return requestCommand(s, "approve", "Make a request of an object that waits for it: approve, or another of its machine", `  kubectl phasegate approve migration --wait
  kubectl phasegate approve databaserestore/nightly -n shop -f restore.yaml`)
}

func retryCommand(s streams) *cobra.Command {
	return requestCommand(s, "retry", "Let an object that failed try again", `  kubectl phasegate retry migration --wait`)
}

func restartCommand(s streams) *cobra.Command {
	return requestCommand(s, "restart", "Restart an MCP server", `  kubectl phasegate restart weather -n mcp --wait
  kubectl phasegate restart weather -n mcp --param strategy=immediate`)
}

// ask is what the flags of a request say.
type ask struct {
	request string
	files   []string
	params  map[string]string
	force   bool
	wait    bool
	timeout time.Duration
}

func requestCommand(s streams, name, short, example string) *cobra.Command {
	a := ask{}
	cmd := &cobra.Command{
		Use:   name + " [[KIND/]NAME]",
		Short: short,
		Long: short + `.

The request is an annotation of the object with a new token; which one, is read
from the machine file. Your own rights on the object apply. Nothing is written
where the object is in a phase that does not wait for the request, or where the
same request is pending already. A migration may be left without a name where there is only
one.

Exit codes: 0 asked, and with --wait: acted on; 1 nothing was asked, or somebody asked
again meanwhile; 2 it could not be asked; 3 --wait: it was not acted on in time.`,
		Example: example,
		Args:    cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMigrations(at)
	flags := cmd.Flags()
	flags.StringVar(&a.request, "request", name, "name of the request in the machine file")
	flags.StringSliceVarP(&a.files, "file", "f", nil, "machine file, or directory of them, that the manager runs; default: the compiled-in machines")
	flags.StringToStringVar(&a.params, "param", nil, "NAME=VALUE of a parameter of the request")
	flags.BoolVar(&a.force, "force", false, "ask even where the request opens nothing, or is pending")
	flags.BoolVar(&a.wait, "wait", false, "wait until the request was acted on")
	flags.DurationVar(&a.timeout, "timeout", time.Minute, "how long to wait")
	_ = cmd.RegisterFlagCompletionFunc("request", completeRequests) // fails only for a flag that is not there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.run(cmd.Context(), s, at, strings.Join(args, ""))
	}
	return cmd
}

func (a *ask) run(ctx context.Context, s streams, at *cluster, target string) error {
	files, err := readMachines(a.files)
	if err != nil {
		return err
	}
	machines, err := sound(s, files)
	if err != nil {
		return err
	}
	objects, mapper, err := at.connect()
	if err != nil {
		return err
	}
	namespace, err := at.namespace()
	if err != nil {
		return err
	}
	kind, name, qualified := strings.Cut(target, "/")
	if !qualified {
		kind, name = "", target
	}
	machine, err := a.machine(machines, mapper, kind)
	if err != nil {
		return err
	}
	if name == "" {
		if name, err = onlyOne(ctx, s, objects, machine); err != nil {
			return err
		}
	}
	request := live.Ask{
		Client: objects, Machine: machine, Object: types.NamespacedName{Namespace: namespace, Name: name},
		Request: a.request, Params: a.params, Force: a.force, Now: time.Now,
	}
	token, err := request.Do(ctx)
	if errors.Is(err, live.ErrNotNow) {
		fmt.Fprintln(s.err, err)
		return errFindings
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s/%s: request %s is %s\n", strings.ToLower(machine.For().Kind), name, a.request, token)
	if !a.wait {
		return nil
	}
	return a.follow(ctx, s, request, token)
}

// onlyOne is the name of the only migration.
func onlyOne(ctx context.Context, s streams, c client.Client, m *fsm.Machine) (string, error) {
	if m.For().Kind != migrationKind.Kind {
		return "", fmt.Errorf("which %s? give its name", m.For().Kind)
	}
	dm, err := theMigration(ctx, s, c, nil)
	if err != nil {
		return "", err
	}
	return dm.Name, nil
}

// follow waits until the request was acted on.
func (a *ask) follow(ctx context.Context, s streams, request live.Ask, token string) error {
	return finish(ctx, s, a.timeout, func(ctx context.Context) error {
		o, err := request.Wait(ctx, token)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(s.err, err)
			return errFindings
		}
		fmt.Fprintf(s.out, "acted on; %s is in phase %s\n", o, o.Machine.Phase)
		return nil
	})
}

// machine finds the one that has the request, for a kind if one is given.
func (a *ask) machine(machines []*fsm.Machine, mapper meta.RESTMapper, kind string) (*fsm.Machine, error) {
	var group schema.GroupKind
	if kind != "" {
		var err error
		if group, err = kindFor(mapper, kind); err != nil {
			return nil, err
		}
	}
	fits := func(m *fsm.Machine) bool {
		has := slices.ContainsFunc(m.Requests(), func(q fsm.Request) bool { return q.Name == a.request })
		of := schema.FromAPIVersionAndKind(m.For().APIVersion, m.For().Kind).GroupKind()
		return kind != "" && of == group || kind == "" && has
	}
	found := slices.DeleteFunc(slices.Clone(machines), func(m *fsm.Machine) bool { return !fits(m) })
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, errors.New("several machines have this request: write KIND/NAME")
	case kind != "":
		return nil, fmt.Errorf("no machine drives %s: give its file with -f", group)
	}
	return nil, fmt.Errorf("no machine has a request %q: give the machine's file with -f, or another --request", a.request)
}

// kindFor reads what kubectl would: a kind, a resource or a short name, with or
// without version and group.
func kindFor(mapper meta.RESTMapper, text string) (schema.GroupKind, error) {
	full, short := schema.ParseResourceArg(strings.ToLower(text))
	if full != nil {
		if kind, err := mapper.KindFor(*full); err == nil {
			return kind.GroupKind(), nil
		}
	}
	kind, err := mapper.KindFor(short.WithVersion(""))
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("the cluster has no kind %q: %w", text, err)
	}
	return kind.GroupKind(), nil
}

func completeRequests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	files, _ := readMachines(nil)
	for _, f := range files {
		if f.machine == nil {
			continue
		}
		for _, q := range f.machine.Requests() {
			names = append(names, q.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
