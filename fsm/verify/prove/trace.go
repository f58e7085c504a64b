package prove

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// findings has one for each cause: what does not hold either on the way on from a state that
// is wrong already is named with it.
func (p *prover) findings() diag.Diagnostics {
	roots, also := p.roots()
	var diags diag.Diagnostics
	for _, v := range roots {
		message := fmt.Sprintf("invariant %s: %s", v.invariant, v.message)
		if more := also[v.invariant]; len(more) > 0 {
			message += "; it also breaks " + strings.Join(more, ", ")
		}
		d := p.machine.Definition().Finding(v.path, "PG201", message, v.fix)
		d.Trace = p.trace(v)
		diags = append(diags, d)
	}
	return diags
}

// roots are the violations that come of no other one, and the invariants that each breaks
// besides: in the same state, or on the way on from there.
func (p *prover) roots() (roots []violation, also map[string][]string) {
	also = map[string][]string{}
	first := map[int]string{} // the violation that is told of a state
	names := p.invariants()
	for _, name := range names {
		v, found := p.violations[name]
		if _, known := first[v.at]; found && !known {
			first[v.at] = name
		}
	}
	for _, name := range names {
		v, found := p.violations[name]
		if !found {
			continue
		}
		root := name
		for at := v.at; at >= 0; at = p.nodes[at].parent {
			if earlier, known := first[at]; known {
				root = earlier
			}
		}
		if root == name {
			roots = append(roots, v)
		} else {
			also[root] = append(also[root], name)
		}
	}
	return roots, also
}

func (p *prover) trace(v violation) []string {
	var passes [][]event
	for at := v.at; at >= 0; at = p.nodes[at].parent {
		passes = append(passes, p.nodes[at].events)
	}
	slices.Reverse(passes)
	passes = append(passes, v.more)
	lines := []string{}
	var last event
	for _, events := range passes {
		led := slices.ContainsFunc(events, func(e event) bool { return e.kind == eventTook })
		for _, e := range events {
			if line := p.line(e, led, v.effects); line != "" {
				lines = append(lines, line)
			}
			last = e
		}
	}
	if last.kind == eventBegins { // elsewhere its end is told
		lines = append(lines, p.where(last)+": "+p.deed(last)+" is about to begin")
	}
	return lines
}

// line is empty for what does not matter. Led: the object changed its phase.
func (p *prover) line(e event, led bool, matter program.EffectSet) string {
	switch e.kind {
	case eventDone, eventWait, eventFails:
		return p.deedLine(e, led, matter)
	case eventTook:
		return p.tookLine(e)
	case eventUnclear:
		if led {
			return p.where(e) + ": a guard cannot be evaluated"
		}
		return ""
	case eventTimeout:
		return p.where(e) + ": the timeout passes"
	}
	return map[eventKind]string{
		eventManifest: "created with the finalizer in its manifest",
		eventDelete:   "kubectl delete",
		eventCrash:    "crash before the status was stored",
		eventChanged:  "another revision of the file begins the phase again",
		eventRemoved:  "the finalizer is removed",
		eventVanished: "the finalizer is removed by hand, and the object deleted",
		eventEarly:    "something wakes the object before the step that failed may be tried again",
	}[e.kind]
}

func (p *prover) where(e event) string {
	if e.phase == noPhase {
		return ""
	}
	return p.prog.Order[e.phase].Name
}

func (p *prover) tookLine(e event) string {
	switch where := p.where(e); e.reason {
	case "Created":
		return ""
	case where, "DeletionRequested":
		return "→ " + where
	default:
		return fmt.Sprintf("→ %s (%s)", where, e.reason)
	}
}

// deedLine tells of an action what it did, if that matters, and how it failed, if
// that led on.
func (p *prover) deedLine(e event, led bool, matter program.EffectSet) string {
	matters := e.did && e.effects&matter != 0
	fails := e.kind == eventFails
	if !matters && !(fails && led) {
		return ""
	}
	text := p.where(e) + ": " + p.deed(e)
	switch {
	case !fails && e.kind == eventDone:
		return text + " done"
	case !fails:
		return text + " done, but waits"
	case matters:
		text += " done, but"
	}
	return text + " fails" + howFails(e.failure)
}

func (p *prover) deed(e event) string {
	if e.step.Undo == "" {
		return e.step.Action
	}
	for _, x := range p.machine.Definition().Spec.Effects {
		if e.effects != 0 && p.set(x.Name)&e.effects == e.effects {
			return p.machine.Program().Effects[x.Name].ReleasedBy()
		}
	}
	return e.step.Label
}

func howFails(f failure) string {
	switch {
	case errors.Is(f.Err, errForGood):
		return " for good"
	case f.last:
		return " too often"
	case f.Class != program.ClassUnavailable:
		return " (" + string(f.Class) + ")"
	}
	return ""
}

func (p *prover) describe(s state) string {
	text := fmt.Sprintf("held [%s], in place [%s]", p.list(s.stored.heldSet()), p.list(s.inPlace))
	if ph := p.phaseOf(s); ph != nil {
		text = "phase " + ph.Name + ", " + text
	}
	if s.gone {
		text += ", gone"
	}
	return text
}

// matter are the effects that an invariant names; all when it names none.
func (p *prover) matter(inv *program.Invariant) program.EffectSet {
	if len(inv.Effects) == 0 {
		return allEffects
	}
	return p.set(inv.Effects...)
}
