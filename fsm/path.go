package fsm

import (
	"slices"
)

// MainPath is the way on which all goes well: the shortest one by exits from the
// initial phase to a phase that ends in success, else to a steady one. Where there
// is neither, it is the initial phase alone.
func (m *Machine) MainPath() []string {
	before := map[string]string{}
	queue := []string{m.def.Spec.Initial}
	var order []*phase
	for len(queue) > 0 {
		p := m.prog.phases[queue[0]]
		order, queue = append(order, p), queue[1:]
		for _, e := range p.edges() {
			if _, seen := before[e.To]; e.Kind == EdgeNext && !seen && e.To != m.def.Spec.Initial {
				before[e.To] = p.Name
				queue = append(queue, e.To)
			}
		}
	}
	goal := slices.IndexFunc(order, func(p *phase) bool { return p.Terminal == "success" })
	if goal < 0 {
		goal = slices.IndexFunc(order, func(p *phase) bool { return p.Kind == "steady" })
	}
	path := []string{order[max(goal, 0)].Name}
	for path[0] != m.def.Spec.Initial {
		path = slices.Insert(path, 0, before[path[0]])
	}
	return path
}
