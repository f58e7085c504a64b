package lint

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Check looks for what a run could come to, once the names in the file are right: after findings that
// say otherwise it finds nothing. objects is what is known of those that the machine drives; nil: nothing.
func Check(def *program.Definition, prog *program.Program, objects *expr.Schema, found diag.Diagnostics) diag.Diagnostics {
	if unclear(def, found) {
		return nil
	}
	c := &linter{def: def, prog: prog, objects: objects, whileHolding: map[[2]string]expr.Truth{}}
	c.ledger()
	c.hotLoops()
	c.unassigned()
	c.secrets()
	for _, p := range c.prog.Order {
		c.checkTimeout(p)
		c.checkGuards(p)
		c.checkRerun(p)
		c.checkCounts(p)
		c.checkOwnExits(p)
		if p.Deletion {
			c.checkDecisions(p)
			c.checkMissing(p)
		}
	}
	return c.diags
}

// unclear: with such a finding the ways are not those that the author has in mind.
func unclear(def *program.Definition, found diag.Diagnostics) bool {
	return len(def.Spec.Effects) > v1alpha1.EffectLimit || slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
		return slices.Contains([]string{"PG000", "PG001", "PG002", "PG005"}, d.Code)
	})
}

// checkTimeout finds phases that nobody would notice are stuck.
func (c *linter) checkTimeout(p *program.Phase) {
	passes := len(p.Edges()) == 0 ||
		len(p.StepList) == 0 && slices.ContainsFunc(p.Exits, func(x program.Exit) bool { return x.When == "" })
	if p.Kind != "" && p.Kind != v1alpha1.PhaseProgressing || p.Terminal != "" || p.End || p.Timeout != nil || passes {
		return
	}
	c.find(p.Path+".name", "PG101", fmt.Sprintf("phase %s is progressing and has no timeout: when it is stuck, nothing says so", p.Name),
		"add timeout: {after: 1h, to: PHASE} or {after: 1h, stalled: REASON}, or kind: waiting where it waits for a person")
}

// checkDecisions: in a deletion phase nothing of another object may decide. It is
// content that nobody declared, so the expression may fail for ever.
func (c *linter) checkDecisions(p *program.Phase) {
	objects := map[output]bool{}
	for i := range p.StepList {
		s := &p.StepList[i]
		c.checkDecision(s.Path+".if", s.IfExpr, objects)
		for name, t := range s.Bound.Spec.Outputs {
			objects[output{name: name}], objects[output{s.Label, name}] = t == expr.TypeObject, t == expr.TypeObject
		}
		c.checkDecision(s.Path+".failWhen", s.FailWhenExpr, objects)
		c.checkDecision(s.Path+".until", s.UntilExpr, objects)
	}
	for i, x := range p.Exits {
		c.checkDecision(fmt.Sprintf("%s.next[%d].when", p.Path, i), x.WhenExpr, objects)
	}
}

func (c *linter) checkDecision(path string, e *expr.Expr, objects map[output]bool) {
	for _, o := range c.outputsOf(e) {
		if objects[o] {
			c.find(path, "PG014", fmt.Sprintf("%s is the content of another object: while it is not what the expression expects, the deletion hangs", o),
				"ask an output that the action declares, or use a step that waits by itself")
		}
	}
}

// checkMissing: what reads a field that is not there is an error each time, and people delete objects that they gave up on half
// filled in. Without a CRD it is not known which fields may be missing.
func (c *linter) checkMissing(p *program.Phase) {
	if c.objects == nil {
		return
	}
	c.evaluated(p, func(path string, e *expr.Expr) {
		c.through(e, func(e *expr.Expr) {
			for _, field := range e.Missing(c.objects) {
				c.find(path, "PG109", fmt.Sprintf("%s may be missing: then this is an error each time, and the deletion waits for ever", field),
					"ask for it with has() or .?, or make the field required in the CRD, or give it a default there")
			}
		})
	})
}

// checkOwnExits: an edge to the phase itself is none. looplab/fsm takes it for a step, which neither leaves a phase nor enters
// one; and the time of a timeout would begin anew with it, and never pass. Closed exits are looked at again by poll, from the first step on.
func (c *linter) checkOwnExits(p *program.Phase) {
	for _, e := range p.Edges() {
		if e.To == p.Name {
			c.find(e.Path, "PG107", fmt.Sprintf("it leads from phase %s to itself, which is no transition", p.Name),
				"remove it: with poll: the phase is looked at again from its first step; or lead to another phase")
		}
	}
}

// hotLoops finds cycles of phases that a run goes round without ever waiting.
func (c *linter) hotLoops() {
	hot := map[string][]program.Edge{}
	for _, p := range c.prog.Order {
		if !waits(p) {
			hot[p.Name] = immediateEdges(p)
		}
	}
	seen := map[string]bool{} // phases of cycles that are reported
	for _, p := range c.prog.Order {
		way := cycle(hot, p.Name)
		if way == nil || seen[p.Name] {
			continue
		}
		var trace []string
		for _, e := range way {
			seen[e.From] = true
			trace = append(trace, arrow(e))
		}
		c.findOnWay(way[0].Path, "PG103", fmt.Sprintf("phase %s leads back to itself without ever waiting", p.Name),
			"add a guard with poll:, a step with until: and poll:, or {wait: 10s}", trace)
	}
}

// waits: the author says that something in the phase takes its time.
func waits(p *program.Phase) bool {
	return p.Poll != "" || p.Terminal != "" || p.End || slices.ContainsFunc(p.StepList, func(s program.Step) bool {
		return s.WaitFor > 0 || s.UntilExpr != nil || s.Poll != ""
	})
}

// immediateEdges are the ways out that are always open, and those that an error opens at once.
func immediateEdges(p *program.Phase) []program.Edge {
	var out []program.Edge
	for _, e := range p.Edges() {
		switch e.Kind {
		case program.EdgeNext:
			if e.Guard == "" || e.Guard == "true" {
				out = append(out, e)
			}
		case program.EdgeError:
			// A terminal error is caught at once, any other where retries do not end.
			if caughtAtOnce(p, program.Class(e.Guard)) {
				out = append(out, e)
			}
		case program.EdgeRetry:
			if endsAtOnce(p, "") {
				out = append(out, e)
			}
		}
	}
	return out
}

func caughtAtOnce(p *program.Phase, class program.Class) bool {
	return len(p.StepList) > 0 && (class == program.ClassTerminal || class == program.ClassAny || p.Backoff.Attempts == 0 || endsAtOnce(p, class))
}

// endsAtOnce tells whether an error of a class, empty: of any, is the last attempt of a step.
func endsAtOnce(p *program.Phase, class program.Class) bool {
	return slices.ContainsFunc(p.StepList, func(s program.Step) bool {
		return slices.Contains(s.Backoff.NonRetryable, class) || class == "" && len(s.Backoff.NonRetryable) > 0
	})
}

// cycle is the shortest way from a phase back to itself; nil when there is none.
func cycle(edges map[string][]program.Edge, start string) []program.Edge {
	into := map[string]program.Edge{}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range edges[queue[0]] {
			if _, known := into[e.To]; !known {
				into[e.To] = e
				queue = append(queue, e.To)
			}
		}
	}
	return program.Way(into, start, start)
}
