package program

import (
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/diag"
)

// Definition is a machine file that decoded without a finding.
type Definition struct {
	v1alpha1.Machine
	*diag.Source

	// Revision is "sha256:" and a hash of what the file says: comments, layout, metadata but
	// the name, and texts for people do not count.
	Revision string

	text []byte
}

// Text is the file as it was read. Nobody may change it.
func (d *Definition) Text() []byte { return d.text }

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
	d.Revision = revisionOf(d.Machine)
	return d, nil
}
