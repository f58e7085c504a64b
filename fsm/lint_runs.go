package fsm

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm/expr"
)

// runs finds effects that are given back while something may run that a step has started under them: what
// ActionSpec.Runs names goes on when its phase is left before the step is done. It ends by itself only where it is
// an effect, too, that was taken later: what is taken last is given back first.
func (c *linter) runs(f *flow) {
	for _, p := range c.prog.order {
		held := f.at[p.Name]
		for i := range p.steps {
			s := &p.steps[i]
			if under := held &^ arrives &^ f.bits[s.acquires]; s.action.spec.Runs != "" && under != 0 {
				f.checkRun(p, s, under)
			}
			held = held&^f.released(s, held) | f.acquired(s)
		}
	}
}

// checkRun follows a run out of its phase, as far as nothing has ended it for certain.
func (f *flow) checkRun(from *phase, s *step, under effectSet) {
	via := map[string]Edge{}
	queue := f.leaveRunning(from, 0, via, nil) // its exits are taken when the run is over
	for ; len(queue) > 0; queue = queue[1:] {
		p := f.c.prog.phases[queue[0]]
		ended := slices.IndexFunc(p.steps, func(q step) bool { return f.ends(&q, s) })
		if ended < 0 {
			ended = len(p.steps)
		}
		for i := range p.steps[:ended] {
			q := &p.steps[i]
			if back := f.gives(q) & under; back != 0 && (q.Undo == "" || s.acquires == "") {
				f.findRun(from, s, p, q, back, via)
				return
			}
		}
		queue = f.leaveRunning(p, ended, via, queue)
	}
}

// leaveRunning adds to the queue, once, where a phase leads to before the step of that number has ended the run.
func (f *flow) leaveRunning(p *phase, ended int, via map[string]Edge, queue []string) []string {
	for _, e := range p.edges() {
		_, known := via[e.To]
		if known || e.Kind == EdgeRequire || e.Kind == EdgeNext && ended < len(p.steps) {
			continue
		}
		via[e.To] = e
		queue = append(queue, e.To)
	}
	return queue
}

// ends tells whether a step ends a run for certain.
func (f *flow) ends(q, run *step) bool {
	return run.acquires != "" && (q.Undo != "" || q.releases == run.acquires) && f.c.whileHeld(q.cond, run.acquires) == expr.Always
}

func (f *flow) findRun(from *phase, s *step, p *phase, q *step, back effectSet, via map[string]Edge) {
	var way []string
	for at := p.Name; ; {
		e := via[at]
		way = append(way, arrow(e))
		if at = e.From; at == from.Name {
			break
		}
	}
	slices.Reverse(way)
	fix := fmt.Sprintf("give %s back before %s", s.acquires, f.list(back))
	if s.acquires == "" {
		fix = fmt.Sprintf("make %s the acquire of an effect, after %s, with a release that ends the %s", s.Action, f.list(back), s.action.spec.Runs)
	}
	f.c.findOnWay(s.path, "PG020", fmt.Sprintf("step %s of %s gives back %s while the %s of step %s may still run",
		q.name, p.Name, f.list(back), s.action.spec.Runs, s.name), fix, way)
}
