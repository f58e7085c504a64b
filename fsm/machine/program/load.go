package program

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// Load decodes a machine file strictly; what it says is checked by Bind. It reads
// nothing but data, and may be called any number of times. The definition is nil
// when there is a finding.
func Load(file string, data []byte) (*Definition, diag.Diagnostics) {
	d := &Definition{text: data}
	var diags diag.Diagnostics
	if d.Source, diags = diag.Decode(file, data, &d.Machine); len(diags) > 0 {
		return nil, diags
	}
	if d.APIVersion != v1alpha1.APIVersion || d.Kind != v1alpha1.KindMachine {
		return nil, diag.Diagnostics{d.Finding("apiVersion", "PG000", fmt.Sprintf("apiVersion %q, kind %q", d.APIVersion, d.Kind),
			fmt.Sprintf("write apiVersion: %s and kind: %s", v1alpha1.APIVersion, v1alpha1.KindMachine))}
	}
	if diags = d.expand(); len(diags) > 0 {
		return nil, diags.Sorted()
	}
	d.Revision = revisionOf(d.Machine)
	return d, nil
}

// revisionOf is the revision of a machine: a hash of what it says, without what only people read.
func revisionOf(m v1alpha1.Machine) string {
	m.Metadata = v1alpha1.FileMeta{Name: m.Metadata.Name}
	m.Spec.Phases = slices.Clone(m.Spec.Phases)
	for i := range m.Spec.Phases {
		m.Spec.Phases[i] = withoutTexts(m.Spec.Phases[i])
	}
	return hashOf(m)
}

// withoutTexts also leaves out a kind that is written out although it is the default.
func withoutTexts(p v1alpha1.Phase) v1alpha1.Phase {
	p.Description, p.Message = "", ""
	if p.Kind == v1alpha1.PhaseProgressing {
		p.Kind = ""
	}
	p.Require, p.Steps, p.Next = slices.Clone(p.Require), slices.Clone(p.Steps), slices.Clone(p.Next)
	for i := range p.Require {
		p.Require[i].Message = ""
	}
	for i := range p.Steps {
		p.Steps[i].Message = ""
	}
	for i := range p.Next {
		p.Next[i].Message = ""
	}
	if p.OnDelete != nil && p.OnDelete.Hold != "" {
		p.OnDelete = &v1alpha1.OnDelete{To: p.OnDelete.To, Hold: "held", Immediate: p.OnDelete.Immediate}
	}
	return p
}

// Against compares a revision of a machine with the one before it: an object in a
// phase that is gone needs to know where it belongs, else it is Stalled.
func (d *Definition) Against(old *Definition) diag.Diagnostics {
	stays := map[string]bool{}
	var names []string
	for _, p := range d.Spec.Phases {
		stays[p.Name] = true
		names = append(names, p.Name)
	}
	var diags diag.Diagnostics
	for _, p := range old.Spec.Phases {
		if stays[p.Name] || d.Spec.Upgrade != nil && d.Spec.Upgrade.PhaseMap[p.Name] != "" {
			continue
		}
		diags = append(diags, d.Finding("spec.upgrade.phaseMap", "PG104",
			fmt.Sprintf("phase %s of %s is gone: an object that is in it would be Stalled with UnknownPhase", p.Name, old.File),
			fmt.Sprintf("add upgrade: {phaseMap: {%s: PHASE}}, with one of %q", p.Name, names)))
	}
	return diags
}
