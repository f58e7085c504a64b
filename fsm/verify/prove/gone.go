package prove

import (
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// stand is all of a state that decides what a run does without an object.
type stand struct {
	phase int16
	progress
}

// checkGone lets the object vanish in every state that was found: its finalizer is removed
// by hand, or its CRD is deleted. From there on something must lead to where nothing is
// held. That nothing is in place then which is not kept is what the ledger proves.
func (p *prover) checkGone() {
	found := map[stand]int{} // with the node that was first in it
	var all []stand
	add := func(s stand, at int) {
		if _, known := found[s]; !known {
			found[s] = at
			all = append(all, s)
		}
	}
	for i, n := range p.nodes {
		if !n.gone && n.stored.held != "" {
			add(stand{n.phase, n.stored}, i)
		}
	}
	before := map[stand][]stand{}
	var done []stand
	for i := 0; i < len(all); i++ {
		from := all[i]
		if from.held == "" {
			done = append(done, from)
			continue
		}
		w := &way{prover: p, at: found[from], from: state{phase: from.phase, stored: from.progress}, vanished: true}
		for more := true; more; more = w.another() {
			w.walk()
			to := stand{w.to.phase, w.to.now()}
			add(to, w.at)
			before[to] = append(before[to], from)
		}
	}
	ends := leadingTo(done, func(s stand) []stand { return before[s] })
	if stuck := slices.IndexFunc(all, func(s stand) bool { return !ends[s] }); stuck >= 0 {
		s := all[stuck]
		p.violate(violation{invariant: invariantGone, path: p.place(state{phase: s.phase}), at: found[s], more: []event{{kind: eventVanished}}, effects: allEffects,
			message: "the object is gone, and " + p.list(s.heldSet()) + " is never released, even if every action succeeds",
			fix:     "release it on every path from here, and use nothing of the object alone on it"})
	}
}

// withoutObject is what an expression comes to where there is no object: self is empty. It
// is an error where the expression reads nothing else that could decide it.
func (p *prover) withoutObject(e *expr.Expr, phase string, held []string) (v ref.Val, certain bool) {
	v, err := e.Partly(map[string]any{expr.VarSelf: map[string]any{}, expr.VarHeld: fsm.HeldEffects(held),
		expr.VarPhase: nameOnly(phase)})
	if err == nil {
		return v, true
	}
	known := func(root, name string) bool {
		return root == expr.VarSelf || root == expr.VarHeld || root == expr.VarPhase && name == "name"
	}
	fails, _ := e.NeedsSelf()
	return nil, fails || !e.ReadsBeside(known)
}

// goneTruth decides a guard while there is no object.
func (w *way) goneTruth(e *expr.Expr) answer {
	v, certain := w.withoutObject(e, w.run.State().Phase, w.run.State().HeldNames())
	switch {
	case v == types.True:
		return answer{open: true}
	case v != nil:
		return answer{}
	case !certain:
		_, neverTrue := e.NeedsSelf()
		return answer{open: !neverTrue && w.pick(2) == 0}
	}
	if attempts := w.fallible[e]; attempts > 1 && w.pick(2) == 1 {
		w.run.State().Attempts = attempts - 1
	}
	return answer{err: errForNow}
}

// nameOnly is what is known of a phase without an object: its name.
func nameOnly(phase string) ref.Val {
	return expr.NewLazyMap(func(name string) ref.Val {
		if name == "name" {
			return types.String(phase)
		}
		return types.WrapErr(errForNow)
	})
}
