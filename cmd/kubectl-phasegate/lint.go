package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/lint"
	pages "github.com/phasegate/phasegate/docs/lint"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/printable"
)

type lintOptions struct {
	at                         *cluster
	output                     *format
	against, bindings, explain string
	crds                       []string
	live, prove, strict        bool
}

func lintCommand(s streams) *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint [FILE|DIR|-]...",
		Short: "Check machine files before they run",
		Long: `Check machines, kind registries, bindings and scenarios: for mistakes, and for what could
hang, leak or never be deleted. Without arguments, the compiled-in machines are checked.
Needs no cluster, and changes nothing.

Each finding has a code; --explain CODE shows its meaning, with an example. To suppress a
warning, write a comment on its line or above it:

  # phasegate:ignore PG101 a person decides, however long it takes

Exit codes: 0 no finding or only warnings, 1 findings, 2 not checked.`,
		Example: `  kubectl phasegate lint phases/
  kubectl phasegate lint --prove my-machine.yaml
  kubectl phasegate lint --against main/my-machine.yaml my-machine.yaml
  kubectl phasegate lint --crd crds/ --bindings my-operator.bindings.yaml my-machine.yaml
  kubectl phasegate lint -o sarif phases/ > lint.sarif
  kubectl phasegate lint --explain PG011`,
	}
	o.at = clusterFlags(cmd)
	flags := cmd.Flags()
	o.output = formatFlag(cmd, "text", "json", "sarif")
	flags.BoolVar(&o.prove, "prove", false, "explore all that can happen to an object, with crashes and deletions")
	flags.StringVar(&o.against, "against", "", "older revision, a file or directory: removed phases need a successor")
	flags.StringVar(&o.bindings, "bindings", "", "actions and guards of another program, a `FILE` of kind Bindings (see: actions -o yaml)")
	flags.StringArrayVar(&o.crds, "crd", nil, "CRDs of the kinds that the machines drive, a `FILE|DIR`; repeatable")
	flags.BoolVar(&o.live, "live", false, "read the CRDs from the cluster")
	flags.BoolVar(&o.strict, "strict", false, "exit with 1 for warnings, too")
	flags.StringVar(&o.explain, "explain", "", "print the page of a `CODE`, check nothing")
	completeFlag(cmd, "explain", slices.Sorted(maps.Keys(diag.Codes))...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args) }
	return cmd
}

func (o *lintOptions) run(ctx context.Context, s streams, args []string) error {
	if o.explain != "" {
		page, err := pages.Page(o.explain)
		fmt.Fprint(s.out, page)
		return err
	}
	show, ok := lintFormats[o.output.value]
	if !ok {
		return fmt.Errorf("-o %q: write one of %q", o.output.value, slices.Sorted(maps.Keys(lintFormats)))
	}
	files, err := lintFiles(s.in, args)
	if err != nil {
		return err
	}
	known, err := o.known(ctx)
	if err != nil {
		return err
	}
	older, err := o.older()
	if err != nil {
		return err
	}
	report, err := lint.Check(files, lint.Options{Bindings: known.Bindings, Kinds: known.Kinds, Against: older, Prove: o.prove})
	if err != nil {
		return err
	}
	if err := show(s.out, report); err != nil {
		return err
	}
	if report.Errors > 0 || o.strict && report.Warnings > 0 {
		return errFindings
	}
	return nil
}

// lintFiles passes over what is of another kind in a directory; what is named is
// meant.
func lintFiles(in io.Reader, args []string) ([]lint.File, error) {
	files, err := readFiles(in, args)
	if err != nil {
		return nil, err
	}
	named := append(slices.Clone(args), stdin)
	files = slices.DeleteFunc(files, func(f lint.File) bool { return !slices.Contains(named, f.Name) && !lint.Ours(f.Data) })
	if len(files) == 0 {
		return nil, fmt.Errorf("nothing to check in %v: no file is of apiVersion %s, name machine files", args, v1alpha1.APIVersion)
	}
	return files, nil
}

// older reads the revisions to compare with; they need not be free of findings.
func (o *lintOptions) older() (map[string]*fsm.Definition, error) {
	if o.against == "" {
		return nil, nil
	}
	files, err := readFiles(nil, []string{o.against})
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	all := map[string]*fsm.Definition{}
	for _, f := range files {
		if def, _ := fsm.Load(f.Name, f.Data); def != nil {
			all[def.Metadata.Name] = def
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--against: no machine can be read from %s: name its file", o.against)
	}
	return all, nil
}

func (o *lintOptions) known(ctx context.Context) (lint.Known, error) {
	var known lint.Known
	if o.bindings != "" {
		files, err := readFiles(nil, []string{o.bindings})
		if err != nil {
			return known, fmt.Errorf("--bindings: %w", err)
		}
		program, diags := program.LoadBindings(files[0].Name, files[0].Data)
		if err := diags.Err(); err != nil {
			return known, fmt.Errorf("--bindings: %w", err)
		}
		known.Program = &program
	}
	var err error
	if known.CRDs, err = readCRDs(o.crds); err != nil {
		return known, err
	}
	if o.live {
		if err := o.ask(ctx, &known); err != nil {
			return known, fmt.Errorf("--live: %w", err)
		}
	}
	return known, nil
}

func (o *lintOptions) ask(ctx context.Context, known *lint.Known) error {
	c, _, err := o.at.connect()
	if err != nil {
		return err
	}
	known.Served = c.RESTMapper()
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	err = c.List(ctx, crds)
	known.CRDs = append(known.CRDs, crds.Items...)
	return err
}

// lintFormats are the values of lint's -o.
var lintFormats = map[string]func(io.Writer, *lint.Report) error{
	"text":  lintText,
	"json":  func(to io.Writer, r *lint.Report) error { return writeJSON(to, r) },
	"sarif": lintSARIF,
}

func lintText(to io.Writer, r *lint.Report) error {
	r = printable.Value(r)
	for _, d := range r.Findings {
		severity := ""
		if d.Severity == diag.SeverityWarning {
			severity = "warning: "
		}
		fmt.Fprintf(to, "%s:%d:%d: %s%s: %s: %s (docs/lint/%[5]s.md)\n", d.File, d.Line, d.Column, severity, d.Code, d.Message, d.Fix)
		for i, step := range d.Trace {
			fmt.Fprintf(to, "    %d. %s\n", i+1, step)
		}
	}
	for _, p := range r.Proofs {
		fmt.Fprintf(to, "%s: explored %d states and %d transitions, for %s\n", p.File, p.States, p.Transitions, statusview.Count(len(p.Invariants), "invariant"))
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(to, "%s: self is not checked: no CRD of %s %s is known here, give it by --crd FILE or --live\n", u.File, u.For.APIVersion, u.For.Kind)
	}
	_, err := fmt.Fprintf(to, "%s, %s, %s\n", statusview.Count(r.Files, "file"), statusview.Count(r.Errors, "error"), statusview.Count(r.Warnings, "warning"))
	return err
}

// lintSARIF writes a log for code scanning. The severities have SARIF's names.
func lintSARIF(to io.Writer, r *lint.Report) error {
	run := sarif.NewRun().WithColumnKind("unicodeCodePoints").
		WithTool(sarif.NewTool().WithDriver(sarif.NewToolComponent().WithName("phasegate").WithVersion(version)))
	for _, code := range slices.Sorted(maps.Keys(diag.Codes)) {
		page, err := pages.Page(code)
		if err != nil {
			return err
		}
		run.AddRule(code).WithDescription(diag.Codes[code].Title).WithMarkdownHelp(page).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(string(diag.Codes[code].Severity)))
	}
	for _, d := range r.Findings {
		run.CreateResultForRule(d.Code).WithLevel(string(d.Severity)).WithMessage(sarif.NewTextMessage(sarifMessage(d))).
			AddLocation(sarif.NewLocationWithPhysicalLocation(sarif.NewPhysicalLocation().
				WithArtifactLocation(sarif.NewSimpleArtifactLocation((&url.URL{Path: filepath.ToSlash(d.File)}).String())).
				WithRegion(sarif.NewRegion().WithStartLine(d.Line).WithStartColumn(d.Column))))
	}
	log := sarif.NewReport().AddRun(run)
	log.Schema = "https://json.schemastore.org/sarif-2.1.0.json" // known to editors
	return writeJSON(to, log)
}

func sarifMessage(d diag.Diagnostic) string {
	text := fmt.Sprintf("%s: %s", d.Message, d.Fix)
	if len(d.Trace) > 0 {
		text += "\n" + strings.Join(d.Trace, "\n")
	}
	return text
}
