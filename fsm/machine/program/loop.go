package program

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// UndoHeld is the undo that releases all effects.
const UndoHeld = "held"

// LoopOutputs are those of a step with forEach, once all its items are done: how many are, and the keys of those that have failed.
var LoopOutputs = map[string]expr.Type{"done": expr.TypeInt, "failed": expr.TypeStrings}

func (c *compiler) loop(path string, src *v1alpha1.ForEach) *Loop {
	if src == nil {
		return nil
	}
	l := &Loop{In: c.list(path+".in", src.In), Parallel: 1, Tolerated: src.ToleratedFailures}
	if src.In == "" {
		c.find(path, "PG000", "a forEach without a list", "add in: with a CEL list, for example result.items")
	}
	if l.In != nil {
		l.Any, _ = c.scope.Compile("size(" + src.In + ") > 0")
		l.Several, _ = c.scope.Compile("size(" + src.In + ") > 1")
	}
	if src.ToleratedFailures < 0 || src.ToleratedFailures > v1alpha1.FailureLimit {
		c.find(path+".toleratedFailures", "PG000", fmt.Sprintf("%d is none of 0 to %d", src.ToleratedFailures, v1alpha1.FailureLimit), "write how many items may fail while the others go on")
	}
	c.parallel(path+".parallel", src.Parallel, l)
	c.scope.Item = true
	l.Key = c.expr(path+".key", src.Key, false)
	c.scope.Item = false
	if k := l.Key; k != nil && k.Out.Kind() != types.StringKind && k.Out.Kind() != types.DynKind {
		c.find(path+".key", "PG006", fmt.Sprintf("the key is %s, not a string", k.Out), "write string(…)")
	}
	return l
}

func (c *compiler) parallel(path string, src any, l *Loop) {
	const fix = "write a number from 1 to 1000, or CEL that comes to one: self.spec.maxUnavailable"
	switch n := src.(type) {
	case nil:
	case int64:
		l.Parallel = int(n)
	case string:
		l.ParallelExpr = c.expr(path, n, false)
		if e := l.ParallelExpr; e != nil && !expr.TypeInt.Fits(e.Out) {
			c.find(path, "PG006", fmt.Sprintf("parallel is %s, not a number", e.Out), fix)
		}
	default:
		c.find(path, "PG000", fmt.Sprintf("%v is no number", src), fix)
	}
	if l.Parallel < 1 || l.Parallel > v1alpha1.ItemLimit {
		c.find(path, "PG000", fmt.Sprintf("%d items at a time", l.Parallel), fix)
	}
}

// list compiles an expression that is to be a list.
func (c *compiler) list(path, text string) *expr.Expr {
	e := c.expr(path, text, false)
	if e != nil && e.Out.Kind() != types.ListKind && e.Out.Kind() != types.DynKind {
		c.find(path, "PG006", fmt.Sprintf("%s is %s, not a list", text, e.Out), "write a list")
		return nil
	}
	return e
}

// keyed notes which effects are taken for each item of a forEach, and finds what does not go with that.
func (c *compiler) keyed() {
	for _, p := range c.prog.Order {
		for i := range p.StepList {
			if s := &p.StepList[i]; s.Loop != nil && s.Acquires != "" {
				e := c.prog.Effects[s.Acquires]
				e.Keyed = true
				c.prog.Effects[s.Acquires] = e
			}
		}
	}
	for _, p := range c.prog.Order {
		for i := range p.StepList {
			c.checkKeyed(&p.StepList[i])
			c.checkUndo(&p.StepList[i])
		}
	}
	c.checkKeyedEffects()
}

func (c *compiler) checkKeyedEffects() {
	for i, e := range c.def.Spec.Effects {
		if found := c.prog.Effects[e.Name]; !found.Keyed && found.BoundRelease.perItem() {
			c.find(fmt.Sprintf("spec.effects[%d].release", i), "PG006", fmt.Sprintf("%s reads item, and no step with forEach takes %s", found.ReleasedBy(), e.Name), "take it in a step with forEach, or do not read item")
		}
	}
	for i, q := range c.def.Spec.Recover {
		for _, name := range q.Holds {
			if c.prog.Effects[name].Keyed {
				c.find(fmt.Sprintf("spec.recover[%d].holds", i), "PG000", fmt.Sprintf("%s is taken for each item of a list, which is lost with the state", name), "restore the MachineState from a backup in this case, and leave it out here")
			}
		}
	}
}

func (c *compiler) checkKeyed(s *Step) {
	const fix = "add forEach to the step"
	switch {
	case s.Loop != nil && s.Action == "":
		c.find(s.Path+".forEach", "PG000", "a forEach repeats an action", "add action: NAME, or remove it")
	case s.Loop != nil:
	case s.Acquires != "" && c.prog.Effects[s.Acquires].Keyed:
		c.find(s.Path, "PG000", fmt.Sprintf("%s is taken here as a whole, and elsewhere for each item of a forEach", s.Acquires), fix+", or use an effect of its own")
	case s.Releases != "" && c.prog.Effects[s.Releases].Keyed:
		c.find(s.Path, "PG000", fmt.Sprintf("%s is held for each item of a forEach", s.Releases), fix+", or write {undo: "+s.Releases+"}")
	case s.Bound.perItem():
		c.find(s.Path, "PG006", fmt.Sprintf("%s reads item, which is known in a step with forEach only", s.Action), fix)
	}
}

func (c *compiler) checkUndo(s *Step) {
	switch e, known := c.prog.Effects[s.Undo]; {
	case s.Undo == "" && s.Keys != "", s.Undo == UndoHeld && s.Keys != "":
		c.find(s.Path+".keys", "PG000", "keys belong to the undo of one effect", "write undo: EFFECT")
	case s.Undo == "", s.Undo == UndoHeld:
	case !known:
		var names []string
		for _, name := range slices.Sorted(maps.Keys(c.prog.Effects)) {
			if c.prog.Effects[name].Keyed {
				names = append(names, name)
			}
		}
		c.find(s.Path+".undo", "PG005", fmt.Sprintf("undo is %q", s.Undo), "write held, for all that is held; "+diag.Instead(s.Undo, "effects of a forEach", names))
	case !e.Keyed:
		c.find(s.Path+".undo", "PG000", fmt.Sprintf("%s is not taken for each item of a forEach", s.Undo), fmt.Sprintf("write action: %s, which releases it, or undo: held", cmp.Or(e.Release, "NAME with the release that the effect names")))
	}
}

// perItem tells whether a parameter reads the item of a forEach.
func (a *Action) perItem() (reads bool) {
	for _, v := range a.With {
		v.Each(func(e *expr.Expr) { reads = reads || e.PerItem })
	}
	return reads
}
