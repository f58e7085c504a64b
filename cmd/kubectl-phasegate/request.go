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

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
)

// aboutRequests is in the help of approve; those of other requests point to it.
const aboutRequests = `.

A request is an annotation with a new token. Which one, the machine file says: that of -f,
else the one that the object's manager has published. You need permission to patch the
object. Nothing is written if the phase does not wait for the request, or if it is pending.

NAME may be KIND/NAME. Without KIND, all kinds whose machine has the request are searched.
Without NAME, it is the only object of a cluster-scoped kind.`

func approveCommand(s streams) *cobra.Command {
	return requestCommand(s, "approve", "Approve an object that waits, or make another request", aboutRequests, `  kubectl phasegate approve migration --wait
  kubectl phasegate approve databaserestore nightly -n shop`)
}

func retryCommand(s streams) *cobra.Command {
	return requestCommand(s, "retry", "Retry an object that failed", ": the same as approve --request retry, see its help.", `  kubectl phasegate retry migration --wait`)
}

func restartCommand(s streams) *cobra.Command {
	return requestCommand(s, "restart", "Restart an MCP server", ": the same as approve --request restart, see its help.", `  kubectl phasegate restart weather -n mcp --wait
  kubectl phasegate restart weather -n mcp --param strategy=immediate`)
}

type ask struct {
	request string
	files   []string
	params  map[string]string
	force   bool
	wait    bool
	timeout time.Duration
}

func requestCommand(s streams, name, short, about, example string) *cobra.Command {
	a := ask{}
	cmd := &cobra.Command{
		Use:   name + " [[KIND] NAME]",
		Short: short,
		Long: short + about + `

Exit codes: 0 requested, with --wait: acted on; 1 not requested, or replaced by a later
request; 2 error; 3 timeout of --wait.`,
		Example: example,
		Args:    cobra.MaximumNArgs(2),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeObjects(at)
	flags := cmd.Flags()
	flags.StringVar(&a.request, "request", name, "name of the request in the machine file")
	flags.StringSliceVarP(&a.files, "file", "f", nil, "machine file, or directory of them; default: the published ones")
	flags.StringToStringVar(&a.params, "param", nil, "parameter of the request, NAME=VALUE")
	flags.BoolVar(&a.force, "force", false, "write even if the phase does not wait for it, or it is pending")
	flags.BoolVar(&a.wait, "wait", false, "wait until the request is acted on")
	flags.DurationVar(&a.timeout, "timeout", time.Minute, "how long to wait; 0 means no limit")
	_ = cmd.RegisterFlagCompletionFunc("request", completeRequests(at)) // fails only for a flag that is not there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.run(cmd.Context(), s, at, args)
	}
	return cmd
}

func (a *ask) run(ctx context.Context, s streams, at *cluster, args []string) error {
	k, err := at.machines(ctx, s, a.files)
	if err != nil {
		return err
	}
	it, err := k.find(ctx, s, args, func(m *fsm.Machine) bool {
		return slices.ContainsFunc(m.Requests(), func(q fsm.Request) bool { return q.Name == a.request })
	})
	if errors.Is(err, errNoMachine) {
		return fmt.Errorf("no machine has a request %q: give the machine's file with -f, or another --request", a.request)
	}
	if err != nil {
		return err
	}
	if _, name := parseTarget(args); name == "" && it.object.Namespace != "" {
		return fmt.Errorf("name the %s: it is in a namespace; write %s", it.kind.Kind, it)
	}
	request := live.Ask{
		Client: k.client, Machine: it.driver, Object: types.NamespacedName{Namespace: it.object.Namespace, Name: it.object.Name},
		Request: a.request, Params: a.params, Force: a.force, Now: time.Now,
	}
	token, err := request.Do(ctx)
	if errors.Is(err, live.ErrNotNow) {
		return tell(s, err, errFindings)
	}
	if err != nil {
		return err
	}
	say(s.out, "%s: request %s is %s", it, a.request, token)
	if !a.wait {
		return nil
	}
	return a.follow(ctx, s, request, token)
}

func (a *ask) follow(ctx context.Context, s streams, request live.Ask, token string) error {
	return finish(ctx, s, a.timeout, func(ctx context.Context) error {
		o, err := request.Wait(ctx, token)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			return tell(s, err, errFindings)
		}
		say(s.out, "acted on; %s is in phase %s", o, o.Machine.Phase)
		return nil
	})
}

func parseTarget(args []string) (kind, name string) {
	if len(args) == 2 {
		return args[0], args[1]
	}
	text := strings.Join(args, "")
	if kind, name, qualified := strings.Cut(text, "/"); qualified {
		return kind, name
	}
	return "", text
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
