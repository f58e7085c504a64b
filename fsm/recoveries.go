package fsm

import "fmt"

// recoveries follows what may be held where a lost state is recovered.
func (f *flow) recoveries() {
	for i, q := range f.c.prog.Recover {
		to, load := f.c.prog.Phases[q.To], effectSet(0)
		for _, name := range q.Holds {
			load |= f.bits[name]
		}
		load &^= f.kept(to)
		f.spread(q.To, load|arrives)
		if load != 0 && (to.End || to.Terminal == "failure") {
			f.c.find(fmt.Sprintf("spec.recover[%d].to", i), "PG011", fmt.Sprintf("%s is entered while %s may be held, and gives nothing back", q.To, f.list(load)),
				"lead to a phase with undo: held")
		}
	}
}
