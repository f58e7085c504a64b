package program

import (
	"fmt"

	"github.com/phasegate/phasegate/fsm/diag"
)

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
