package main

import (
	"context"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
)

// completionTakes is how long a shell may wait for names.
const completionTakes = 3 * time.Second

// quietly reads the machines of a cluster, and takes the compiled-in ones where it does not
// answer soon. warn is where it says that another machine is taken than the one that is published.
func (c *cluster) quietly(ctx context.Context, warn io.Writer) (*known, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, completionTakes)
	c.limit = completionTakes // discovery heeds no context
	k, err := c.machines(ctx, streams{out: io.Discard, err: warn}, nil)
	c.limit = 0
	if err != nil {
		k = &known{all: candidates(nil, compiledIn(), true), unread: "no cluster answers"}
	}
	return k, ctx, cancel
}

const anyNumber = math.MaxInt

// completing offers what the known machines say, for so many arguments at most; rest says whether files go with it.
func (c *cluster) completing(most int, rest cobra.ShellCompDirective, offer func(ctx context.Context, k *known, args []string, text string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, rest
		}
		k, ctx, cancel := c.quietly(cmd.Context(), io.Discard)
		defer cancel()
		return offer(ctx, k, args, text), rest
	}
}

// completeObjects offers what KIND NAME, KIND/NAME or NAME may be: the kinds that machines
// drive, and the names of their objects in the namespace.
func completeObjects(at *cluster) cobra.CompletionFunc {
	return at.completing(2, cobra.ShellCompDirectiveNoFileComp, func(ctx context.Context, k *known, args []string, text string) []string {
		kind, _, qualified := strings.Cut(text, "/")
		switch {
		case len(args) == 1 && strings.Contains(args[0], "/"):
			return nil
		case len(args) == 1:
			return k.names(ctx, args[0], "")
		case qualified:
			return k.names(ctx, kind, kind+"/")
		}
		return append(k.kinds(), k.names(ctx, "", "")...)
	})
}

func completeKinds(at *cluster) cobra.CompletionFunc {
	return at.completing(1, cobra.ShellCompDirectiveNoFileComp, func(_ context.Context, k *known, _ []string, _ string) []string { return k.kinds() })
}

func (k *known) kinds() (all []string) {
	for _, c := range k.all {
		all = append(all, c.lowerKind())
	}
	return all
}

// names are those of the objects of a kind, or of all kinds, each behind a prefix.
func (k *known) names(ctx context.Context, kind, prefix string) (all []string) {
	if k.client == nil {
		return nil
	}
	among, _ := k.ofKind(kind)
	for _, c := range among {
		m, err := c.machine(live.Object{})
		if err != nil {
			continue
		}
		objects, _ := live.List(ctx, k.client, m, k.within(c))
		for _, o := range objects {
			if !o.Gone {
				all = append(all, prefix+o.Name)
			}
		}
	}
	return all
}

func completeRequests(at *cluster) cobra.CompletionFunc {
	return at.completing(anyNumber, cobra.ShellCompDirectiveNoFileComp, func(_ context.Context, k *known, _ []string, _ string) (names []string) {
		for _, c := range k.all {
			if m, err := c.machine(live.Object{}); err == nil {
				for _, q := range m.Requests() {
					names = append(names, q.Name)
				}
			}
		}
		return names
	})
}

// completeMachines offers the machines that are known beside files; as the first argument of a command
// that takes phases, too, also these.
func completeMachines(at *cluster, phases bool) cobra.CompletionFunc {
	return at.completing(anyNumber, cobra.ShellCompDirectiveDefault, func(_ context.Context, k *known, args []string, _ string) (names []string) {
		for _, c := range k.all {
			names = append(names, c.name)
			if !phases || len(args) > 0 {
				continue
			}
			if m, err := c.machine(live.Object{}); err == nil {
				names = append(names, m.Phases()...)
			}
		}
		return names
	})
}

func completeCompiled(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	for _, m := range compiledIn() {
		names = append(names, m.Name())
	}
	return names, cobra.ShellCompDirectiveDefault
}
