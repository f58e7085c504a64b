// Package lint checks files before anything runs: machines, kind registries,
// bindings and scenarios, each by itself and all of them as a set. What is wrong is
// decided in fsm and resources; here it is only found out what a file is, and what
// it is to be checked against.
package lint

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
	"github.com/phasegate/phasegate/resources"
)

// File is a file that was read.
type File struct {
	Name string
	Data []byte
}

// Options say what machines are checked against.
type Options struct {
	// Bindings answers what the machine of a file may name, and the type of `self`.
	Bindings func(*fsm.Definition) (fsm.Bindings, error)
	// Kinds finds what is wrong with the kinds that a machine without errors names; nil: nothing is looked for.
	Kinds func(*fsm.Machine) diag.Diagnostics
	// Against are the older revisions, by the name of the machine.
	Against map[string]*fsm.Definition
	// Prove looks at everything that can happen to an object.
	Prove bool
}

// Report is what was found. Its fields are stable.
type Report struct {
	Files    int              `json:"files"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Findings diag.Diagnostics `json:"findings"`
	Proofs   []Proof          `json:"proofs,omitempty"`
	// Unchecked are machines of whose objects no CRD is known: what is read of `self` may not be there.
	Unchecked []Unchecked `json:"unchecked,omitempty"`
}

// Unchecked is a machine whose `self` could not be checked.
type Unchecked struct {
	File string              `json:"file"`
	For  v1alpha1.ObjectKind `json:"for"`
}

// Proof is how much of a machine was looked at.
type Proof struct {
	File string `json:"file"`
	prove.Report
}

// Check checks files as one set: all that is wrong with any of them, by file and
// line. An error means that a check could not be made. It may be called any number
// of times.
func Check(files []File, o Options) (*Report, error) {
	r := &Report{Files: len(files), Findings: diag.Diagnostics{}}
	names := map[string]string{}
	for _, f := range files {
		diags, err := r.check(f, names, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		r.Findings = append(r.Findings, diags...)
	}
	slices.SortStableFunc(r.Findings, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code))
	})
	for _, d := range r.Findings {
		if d.Severity == diag.SeverityWarning {
			r.Warnings++
		} else {
			r.Errors++
		}
	}
	return r, nil
}

// Ours tells whether a file is of one of the kinds that are checked. A file that
// cannot be read may be one.
func Ours(data []byte) bool {
	apiVersion, _, err := kindOf(data)
	return err != nil || strings.HasPrefix(apiVersion, v1alpha1.Group+"/")
}

func kindOf(data []byte) (apiVersion, kind string, err error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	err = yaml.Unmarshal(data, &head)
	return head.APIVersion, head.Kind, err
}

func (r *Report) check(f File, names map[string]string, o Options) (diag.Diagnostics, error) {
	_, kind, _ := kindOf(f.Data) // of a file that cannot be read, the machine's loader says why
	switch kind {
	case resources.KindRegistry:
		return Registry(f.Name, f.Data), nil
	case program.KindBindings:
		_, diags := program.LoadBindings(f.Name, f.Data)
		return diags, nil
	case simulate.KindScenario:
		_, diags := simulate.Load(f.Name, f.Data)
		return diags, nil
	}
	def, diags := fsm.Load(f.Name, f.Data)
	if def == nil {
		return diags, nil
	}
	if first, taken := names[def.Metadata.Name]; taken {
		diags = append(diags, def.Finding("metadata.name", "PG000", fmt.Sprintf("machine %s is in %s already", def.Metadata.Name, first), "give it another name, or remove one of the files"))
	} else {
		names[def.Metadata.Name] = f.Name
	}
	more, err := r.machine(def, o)
	return append(diags, more...), err
}

func (r *Report) machine(def *fsm.Definition, o Options) (diag.Diagnostics, error) {
	b, err := o.Bindings(def)
	if err != nil {
		return nil, err
	}
	if b.Self == nil && b.Described == nil {
		r.Unchecked = append(r.Unchecked, Unchecked{File: def.File, For: def.Spec.For})
	}
	m, diags := fsm.Bind(def, b)
	if m != nil && o.Kinds != nil {
		diags = append(diags, o.Kinds(m)...)
	}
	if old := o.Against[def.Metadata.Name]; old != nil {
		diags = append(diags, def.Against(old)...)
	}
	if !o.Prove {
		return diags, nil
	}
	if m := fsm.Provable(def, b); m != nil {
		report, found := prove.Prove(m, prove.Options{})
		r.Proofs = append(r.Proofs, Proof{File: def.File, Report: report})
		diags = proved(diags, found)
	}
	return diags, nil
}

// proved adds what a proof has found. Where a file is refused for what a run could come to, the
// proof finds that, too: its way is shown with the finding then, so that one cause has one.
func proved(diags, found diag.Diagnostics) diag.Diagnostics {
	i := slices.IndexFunc(diags, func(d diag.Diagnostic) bool { return d.Severity == diag.SeverityError })
	if i < 0 || len(found) == 0 {
		return append(diags, found...)
	}
	if len(diags[i].Trace) == 0 {
		diags[i].Trace = found[0].Trace
	}
	return diags
}

// Registry checks a kind registry file. It may be called any number of times.
func Registry(file string, data []byte) diag.Diagnostics {
	var registry v1alpha1.KindRegistry
	src, diags := diag.Decode(file, data, &registry)
	if len(diags) > 0 {
		return diags
	}
	if registry.APIVersion != v1alpha1.APIVersion || registry.Kind != resources.KindRegistry {
		return diag.Diagnostics{src.Finding("apiVersion", "PG000", fmt.Sprintf("apiVersion %q, kind %q", registry.APIVersion, registry.Kind),
			fmt.Sprintf("write apiVersion: %s and kind: %s", v1alpha1.APIVersion, resources.KindRegistry))}
	}
	for _, m := range resources.Mistakes(registry.Spec.Kinds) {
		diags = append(diags, src.Finding(m.Path, "PG000", m.Error(), "see resources/kinds.yaml for an example of each field"))
	}
	return diags
}

// LoadRegistry reads a kind registry file; that which is compiled in where no file is
// named. An error is a list of findings, or about the file itself, and names the flag
// that all programs have for it, --kinds-file.
func LoadRegistry(file string) (*resources.Registry, error) {
	if file == "" {
		return resources.Default(), nil
	}
	registry, err := readRegistry(file)
	if err != nil {
		return nil, fmt.Errorf("--kinds-file: %w", err)
	}
	return registry, nil
}

func readRegistry(file string) (*resources.Registry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := Registry(file, data).Err(); err != nil {
		return nil, err
	}
	return resources.LoadRegistry(file, data)
}
