package lint

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// runs finds effects that are released while something may run that a step has started under them: what
// ActionSpec.Runs names goes on when its phase is left before the step is done. It ends by itself only where it is
// an effect, too, that was taken later: what is taken last is released first; or where an action says that it ends it.
func (c *linter) runs(f *flow) {
	for _, p := range c.prog.Order {
		held := f.at[p.Name]
		for i := range p.StepList {
			s := &p.StepList[i]
			if under := held &^ arrives &^ f.effects.Set(s.Acquires); s.Bound.Spec.Runs != "" && under != 0 {
				f.checkRun(p, s, under)
			}
			held = held&^f.released(s, held) | f.acquired(s)
		}
	}
}

// checkRun follows a run out of its phase, as far as nothing has ended it for certain.
func (f *flow) checkRun(from *program.Phase, s *program.Step, under program.EffectSet) {
	via := map[string]program.Edge{}
	queue := f.leaveRunning(from, 0, via, nil) // its exits are taken when the run is over
	for ; len(queue) > 0; queue = queue[1:] {
		p := f.c.prog.Phases[queue[0]]
		ended := slices.IndexFunc(p.StepList, func(q program.Step) bool { return f.ends(&q, s) })
		if ended < 0 {
			ended = len(p.StepList)
		}
		for i := range p.StepList[:ended] {
			q := &p.StepList[i]
			if back := f.gives(q) & under; back != 0 && (q.Undo == "" || s.Acquires == "") {
				f.findRun(from, s, p, q, back, via)
				return
			}
		}
		queue = f.leaveRunning(p, ended, via, queue)
	}
}

// leaveRunning adds to the queue, once, where a phase leads to before the step of that number has ended the run.
func (f *flow) leaveRunning(p *program.Phase, ended int, via map[string]program.Edge, queue []string) []string {
	for _, e := range p.Edges() {
		_, known := via[e.To]
		if known || e.Kind == program.EdgeRequire || e.Kind == program.EdgeNext && ended < len(p.StepList) {
			continue
		}
		via[e.To] = e
		queue = append(queue, e.To)
	}
	return queue
}

// ends tells whether a step ends a run for certain.
func (f *flow) ends(q, run *program.Step) bool {
	if ends := q.Bound.Spec.Ends; ends != nil && q.IfExpr == nil && ends(q.Bound.Written(), run.Bound.Written()) {
		return true
	}
	return run.Acquires != "" && (q.Undo != "" || q.Releases == run.Acquires) && f.c.whileHeld(q.IfExpr, run.Acquires) == expr.Always
}

func (f *flow) findRun(from *program.Phase, s *program.Step, p *program.Phase, q *program.Step, back program.EffectSet, via map[string]program.Edge) {
	var way []string
	for _, e := range program.Way(via, from.Name, p.Name) {
		way = append(way, arrow(e))
	}
	fix := fmt.Sprintf("release %s before %s", s.Acquires, f.list(back))
	if s.Acquires == "" {
		fix = fmt.Sprintf("make %s the acquire of an effect, after %s, with a release that ends the %s", s.Action, f.list(back), s.Bound.Spec.Runs)
	}
	f.c.findOnWay(s.Path, "PG020", fmt.Sprintf("step %s of %s releases %s while the %s of step %s may still run",
		q.Label, p.Name, f.list(back), s.Bound.Spec.Runs, s.Label), fix, way)
}
