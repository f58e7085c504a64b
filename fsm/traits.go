package fsm

import "github.com/phasegate/phasegate/api/phasegate/v1alpha1"

// Traits are what is special about a phase of the machine, in a few words each.
func (m *Machine) Traits(p *v1alpha1.Phase) []string {
	var all []string
	add := func(is bool, words string) {
		if is {
			all = append(all, words)
		}
	}
	add(p.Name == m.def.Spec.Initial, "initial")
	add(p.Kind != "" && p.Kind != "progressing", p.Kind)
	add(p.Terminal != "", "terminal: "+p.Terminal)
	add(p.Deletion, "deletion")
	add(p.End, "end")
	add(p.PointOfNoReturn, "point of no return")
	add(p.ShowAs != "", "shown as "+p.ShowAs)
	return all
}
