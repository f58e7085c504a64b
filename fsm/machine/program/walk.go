package program

import "slices"

// Names are those of the phases, in document order.
func (prog *Program) Names() []string {
	names := make([]string, len(prog.Order))
	for i, p := range prog.Order {
		names[i] = p.Name
	}
	return names
}

// Walk goes breadth first from phases along the edges that follow lets pass: all phases that it comes to, in that order, and
// for each the edge that led there, of a phase that it starts from none.
func (prog *Program) Walk(follow func(*Phase, Edge) bool, from ...string) (order []*Phase, into map[string]Edge) {
	into = map[string]Edge{}
	visit := func(name string, e Edge) {
		if _, seen := into[name]; !seen && prog.Phases[name] != nil {
			into[name] = e
			order = append(order, prog.Phases[name])
		}
	}
	for _, name := range from {
		visit(name, Edge{})
	}
	for i := 0; i < len(order); i++ {
		for _, e := range order[i].Edges() {
			if follow(order[i], e) {
				visit(e.To, e)
			}
		}
	}
	return order, into
}

// Way is the one on which a walk came to a phase, from where it started, or since it was at from last.
func Way(into map[string]Edge, from, to string) []Edge {
	var way []Edge
	for e := into[to]; e.From != ""; e = into[e.From] {
		if way = append(way, e); e.From == from {
			break
		}
	}
	slices.Reverse(way)
	return way
}

func anyEdge(*Phase, Edge) bool { return true }
