package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/printable"
)

// format is what -o says, of those that a command has itself.
type format struct {
	value string
	known []string
}

// formatFlag gives a command -o for some formats; the first is the default.
func formatFlag(cmd *cobra.Command, formats ...string) *format {
	f := &format{known: formats}
	cmd.Flags().StringVarP(&f.value, "output", "o", formats[0], f.choice())
	completeFlag(cmd, "output", formats...)
	return f
}

func (f *format) choice() string {
	last := len(f.known) - 1
	return strings.Join(f.known[:last], ", ") + " or " + f.known[last]
}

func (f *format) check() error {
	if !slices.Contains(f.known, f.value) {
		return fmt.Errorf("-o %q: write %s", f.value, f.choice())
	}
	return nil
}

// show writes a value as JSON, or as a text of what can be printed of it.
func show[T any](to io.Writer, f *format, value T, text func(T) string) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.value == "json" {
		return writeJSON(to, value)
	}
	_, err := io.WriteString(to, text(printable.Value(value)))
	return err
}

// refused are characters that JSON has as they are, and a reader of YAML takes only escaped.
var refused = regexp.MustCompile(`[\x{7f}-\x{9f}\x{fffe}\x{ffff}]`)

// writeYAML writes an object for programs. It is YAML made of JSON, as kubectl's is.
func writeYAML(to io.Writer, u *unstructured.Unstructured) error {
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if data, err = yaml.JSONToYAML(refused.ReplaceAllFunc(data, func(c []byte) []byte { return []byte(printable.Line(string(c))) })); err != nil {
		return err
	}
	_, err = to.Write(data)
	return err
}

// writeJSON writes a value for programs, as people can read it.
func writeJSON(to io.Writer, value any) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	// The flag exists, and one function is registered: there is nothing to fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// output is what -o says: a text of ours, or what a printer of kubectl makes of a value.
type output struct {
	format string
	ours   []string
	flags  *genericclioptions.PrintFlags
}

// theirs are the formats of kubectl that completion offers.
var theirs = []string{"json", "yaml", "name", "jsonpath=", "go-template="}

// outputFlags gives a command -o and --template. The first format of ours is the default.
func outputFlags(cmd *cobra.Command, ours ...string) *output {
	o := &output{format: ours[0], ours: ours, flags: genericclioptions.NewPrintFlags("")}
	o.flags.OutputFormat = &o.format
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flag("output").Changed }
	all := slices.Concat(ours, theirs)
	cmd.Flags().StringVarP(&o.format, "output", "o", o.format, "one of "+strings.Join(all, ", "))
	cmd.Flags().StringVar(o.flags.TemplatePrinterFlags.TemplateArgument, "template", "", "template of -o go-template, or its file")
	completeFlag(cmd, "output", all...)
	return o
}

type shown[T any] struct {
	// kind of the value, and what it is about: that is what -o name names.
	kind  string
	of    schema.GroupVersionKind
	name  string
	value T
	// text writes the formats of ours of what can be printed of the value; wide is the one of that name.
	text func(value T, to io.Writer, wide bool) error
}

// check refuses a format that is none, before anything is asked of a cluster.
func (o *output) check() error {
	if slices.Contains(o.ours, o.format) {
		return nil
	}
	_, err := o.printer()
	return err
}

func (o *output) printer() (printers.ResourcePrinter, error) {
	p, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("-o %q: write one of %s", o.format, strings.Join(slices.Concat(o.ours, theirs), ", "))
	}
	return p, err
}

func display[T any](to io.Writer, o *output, what shown[T]) error {
	if slices.Contains(o.ours, o.format) {
		return what.text(printable.Value(what.value), to, o.format == "wide")
	}
	printer, err := o.printer()
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(what.of)
	if o.format != "name" {
		data, err := json.Marshal(what.value)
		if err != nil {
			return err
		}
		if err := utiljson.Unmarshal(data, &u.Object); err != nil { // jsonpath would print a float as 1e+06
			return err
		}
		u.SetAPIVersion(v1alpha1.APIVersion)
		u.SetKind(what.kind)
	}
	u.SetName(what.name)
	switch o.format {
	case "json":
		return printer.PrintObj(u, to) // what is escaped is the same data
	case "yaml":
		return writeYAML(exact(to), u)
	}
	return printer.PrintObj(u, exact(to))
}

// say writes one line for people.
func say(to io.Writer, format string, args ...any) {
	fmt.Fprintln(to, printable.Line(fmt.Sprintf(format, args...)))
}

// The exit codes, so that scripts can tell what happened without reading it.
const (
	exitFindings = 1
	exitUsage    = 2
	exitTimedOut = 3
	exitWaits    = 4
)

// What is told already, on stdout or on stderr, and makes an exit code.
var (
	// errFindings says that the command did its work and found something, or that what
	// it watched has failed.
	errFindings = errors.New("there are findings")
	// errTimedOut says that --timeout was over first.
	errTimedOut = errors.New("timed out")
	// errWaits says that nothing moves before a person has acted.
	errWaits = errors.New("it waits for a person")
)

var exitCodes = map[error]int{errFindings: exitFindings, errTimedOut: exitTimedOut, errWaits: exitWaits}

func exitCode(s streams, err error) int {
	for told, code := range exitCodes {
		if errors.Is(err, told) {
			return code
		}
	}
	fmt.Fprintln(s.err, "kubectl-phasegate:", printable.Block(err.Error()))
	return exitUsage
}

// tell prints an error that is an answer, and answers the one that makes its exit code.
func tell(s streams, answer, code error) error {
	fmt.Fprintln(s.err, printable.Block(answer.Error()))
	return code
}

// finish waits, for as long as --timeout says; 0 is for ever. Where that is over first,
// it tells what wait answered and ends with the exit code for it. Any other end is wait's.
func finish(ctx context.Context, s streams, timeout time.Duration, wait func(context.Context) error) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := wait(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tell(s, fmt.Errorf("timed out after %s: %w", timeout, err), errTimedOut)
	}
	return err
}
