// Command cluster builds, starts and ends Kubernetes control planes for tests,
// without containers. Its exit code is 0 if it did what it was asked, 1 if
// that failed, 2 if it was asked wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/phasegate/phasegate/test/cluster/internal/controlplane"
	"github.com/phasegate/phasegate/test/cluster/internal/tools"
)

const usage = `usage:
  cluster up    --dir DIR [--tools bin/tools] [--nodes 3] [--no-fsync] [--without=fakenodes,scheduler] [--skip-missing]
                [--api-server-arg=--FLAG=VALUE]...
  cluster up    --dir DIR --kubeconfig FILE
  cluster down  --dir DIR
  cluster run   --dir DIR --name NAME -- PROGRAM [ARGUMENT...]
  cluster tools [--source test/cluster] [--out bin/tools] [--skip=helm] [--assets DIR | --kubernetes v1.30.14]

up starts a control plane in DIR and leaves DIR/kubeconfig, or takes that of a
cluster that exists; down ends what up started and removes DIR; run starts a program that down ends too, in place of the one that
runs under the same name; tools builds what up needs.
`

// errUsage marks a command line that is wrong.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "cluster: %v\n%s", err, usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: no command", errUsage)
	}
	commands := map[string]func(context.Context, []string, io.Writer) error{
		"up": up, "down": down, "run": start, "tools": build,
	}
	command, ok := commands[args[0]]
	if !ok && strings.Contains("help -h --help", args[0]) {
		return flag.ErrHelp
	}
	if !ok {
		return fmt.Errorf("%w: no command %q", errUsage, args[0])
	}
	return command(ctx, args[1:], out)
}

func up(ctx context.Context, args []string, out io.Writer) error {
	options := controlplane.Options{Out: out}
	flags := newFlags(&options.Dir)
	flags.StringVar(&options.Tools, "tools", "bin/tools", "")
	flags.IntVar(&options.Nodes, "nodes", 3, "")
	flags.BoolVar(&options.NoFsync, "no-fsync", false, "")
	flags.BoolVar(&options.SkipMissing, "skip-missing", false, "")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "")
	flags.Func("api-server-arg", "", func(arg string) error {
		options.APIServerArgs = append(options.APIServerArgs, arg)
		return nil
	})
	without := flags.String("without", "", "")
	if err := parse(flags, args, &options.Dir, 0); err != nil {
		return err
	}
	options.Without = split(*without)
	if err := options.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return controlplane.Up(ctx, options)
}

func down(_ context.Context, args []string, out io.Writer) error {
	var dir string
	flags := newFlags(&dir)
	if err := parse(flags, args, &dir, 0); err != nil {
		return err
	}
	return controlplane.Down(dir, out)
}

func start(_ context.Context, args []string, out io.Writer) error {
	var dir string
	flags := newFlags(&dir)
	name := flags.String("name", "", "")
	if err := parse(flags, args, &dir, -1); err != nil {
		return err
	}
	if *name == "" || strings.ContainsRune(*name, filepath.Separator) || flags.NArg() == 0 {
		return fmt.Errorf("%w: run needs a --name and a program", errUsage)
	}
	return controlplane.Run(dir, *name, out, flags.Arg(0), flags.Args()[1:]...)
}

func build(ctx context.Context, args []string, out io.Writer) error {
	options := tools.Options{Progress: out}
	flags := newFlags(nil)
	flags.StringVar(&options.Source, "source", "test/cluster", "")
	flags.StringVar(&options.Out, "out", "bin/tools", "")
	flags.StringVar(&options.Assets, "assets", "", "")
	flags.StringVar(&options.Kubernetes, "kubernetes", "", "")
	skip := flags.String("skip", "", "")
	if err := parse(flags, args, nil, 0); err != nil {
		return err
	}
	names, err := tools.Select(split(*skip))
	if err = errors.Join(err, options.Check()); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache directory: %w; set XDG_CACHE_HOME", err)
	}
	options.Names, options.Cache = names, filepath.Join(cache, "phasegate", "tools")
	return tools.Build(ctx, options)
}

// newFlags makes a flag set that leaves errors and help to main, with --dir if
// the command has a home to work in.
func newFlags(dir *string) *flag.FlagSet {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if dir != nil {
		flags.StringVar(dir, "dir", "", "")
	}
	return flags
}

// parse reads a command line that has at most rest further arguments, or any
// number if rest is negative.
func parse(flags *flag.FlagSet, args []string, dir *string, rest int) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if rest >= 0 && flags.NArg() > rest {
		return fmt.Errorf("%w: what is %q?", errUsage, flags.Arg(rest))
	}
	if dir != nil && *dir == "" {
		return fmt.Errorf("%w: --dir is missing", errUsage)
	}
	return nil
}

// split reads a list separated by commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
