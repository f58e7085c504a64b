package program

import (
	"fmt"
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// recovery compiles spec.recover. What is in it is checked as exits are: an entry behind
// one that always applies would never be asked.
func (c *compiler) recovery(all []v1alpha1.Recovery) {
	c.scope.NoResults()
	for i, src := range all {
		path := fmt.Sprintf("spec.recover[%d]", i)
		q := Recovery{src, c.expr(path+".when", src.When, true)}
		if src.When == "" && i < len(all)-1 {
			c.find(path, "PG004", "the entries behind this one never apply: it has no when", "give it a when, or make it the last one")
		}
		for _, name := range q.WhenExpr.Reads(expr.VarVariables) {
			if c.readsResult(name) {
				c.find(path+".when", "PG006", fmt.Sprintf("variables.%s reads result, and no step has run", name), "read the object, or ask a guard")
			}
		}
		if c.prog.Phases[src.To] == nil {
			c.find(path+".to", "PG001", fmt.Sprintf("phase %q does not exist", src.To), c.prog.knownPhases(src.To))
		}
		c.reason(path+".reason", src.Reason)
		c.recovered(path, src.Holds)
		c.prog.Recover = append(c.prog.Recover, q)
	}
}

func (c *compiler) readsResult(variable string) bool {
	f := c.prog.Variables[variable]
	return len(f.Reads(expr.VarResult))+len(f.Reads(expr.VarSteps)) > 0 || slices.ContainsFunc(f.Reads(expr.VarVariables), c.readsResult)
}

func (c *compiler) recovered(path string, holds []string) {
	for i, name := range holds {
		at := fmt.Sprintf("%s.holds[%d]", path, i)
		if c.prog.Effects[name].Name == "" {
			c.find(at, "PG000", fmt.Sprintf("%q is no effect of this machine", name), fmt.Sprintf("write one of %q", slices.Sorted(maps.Keys(c.prog.Effects))))
		}
		if slices.Contains(holds[:i], name) {
			c.find(at, "PG000", fmt.Sprintf("effect %q is listed twice", name), "remove one of them")
		}
	}
}

// checkUpgrade checks that old names are old and new ones exist.
func (g *graph) checkUpgrade() {
	u := g.def.Spec.Upgrade
	if u == nil {
		return
	}
	g.checkPhaseMap()
	g.checkNames("effectMap", "effect", u.EffectMap, func(name string) bool { return g.prog.Effects[name].Name != "" })
	g.checkNames("requestMap", "request", u.RequestMap, func(name string) bool { return g.prog.Requests[name] != nil })
	g.checkNames("stepMap", "step", u.StepMap, func(name string) bool {
		return slices.ContainsFunc(g.prog.Order, func(p *Phase) bool {
			return slices.ContainsFunc(p.StepList, func(s Step) bool { return s.Label == name })
		})
	})
}

func (g *graph) checkNames(field, what string, names map[string]string, known func(string) bool) {
	for _, old := range slices.Sorted(maps.Keys(names)) {
		path := "spec.upgrade." + field + "." + old
		if known(old) {
			g.find(path, "PG000", fmt.Sprintf("%s %s is one of this revision: it needs no adoption", what, old), "remove the entry")
		}
		if !known(names[old]) {
			g.find(path, "PG000", fmt.Sprintf("%s %q does not exist", what, names[old]), fmt.Sprintf("name the %s that took the place of %s", what, old))
		}
	}
}

// checkPhaseMap makes an edge of each phase that an older revision had.
func (g *graph) checkPhaseMap() {
	for _, old := range slices.Sorted(maps.Keys(g.def.Spec.Upgrade.PhaseMap)) {
		to, path := g.def.Spec.Upgrade.PhaseMap[old], "spec.upgrade.phaseMap."+old
		if g.prog.Phases[old] != nil {
			g.find(path, "PG000", fmt.Sprintf("%s is a phase of this revision: it needs no adoption", old), "remove the entry")
		}
		if g.prog.Phases[to] == nil {
			g.find(path, "PG001", fmt.Sprintf("phase %q does not exist", to), g.prog.knownPhases(to))
		}
	}
}
