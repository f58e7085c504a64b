package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// touched are the fields of an object that a step reads or writes.
type touched struct {
	group, kind, namespace, name string
	// fields are paths; none: all.
	fields [][]string
	// makes: afterwards the object is there, as the parameters say, or is not there.
	makes bool
}

// touches is what an action is about; false where the file does not tell.
func touches(t *program.Target, a *program.Action) (touched, bool) {
	if t == nil {
		return touched{}, false
	}
	param := func(name string) any {
		if v := a.With[name]; v != nil {
			return v.Written()
		}
		return nil
	}
	of, at := map[string]any{}, map[string]any{}
	for _, field := range []string{"apiVersion", "kind", "namespace", "name"} {
		of[field], at[field] = param(field), param(field)
	}
	if t.Manifest != "" {
		of, _ = param(t.Manifest).(map[string]any)
		at, _ = of["metadata"].(map[string]any)
	}
	text := func(m map[string]any, field string) string {
		s, _ := m[field].(string)
		return s
	}
	group, _, versioned := strings.Cut(text(of, "apiVersion"), "/")
	if !versioned {
		group = ""
	}
	out := touched{group: group, kind: text(of, "kind"), namespace: text(at, "namespace"), name: text(at, "name")}
	if out.namespace == "${self.metadata.namespace}" {
		out.namespace = ""
	}
	switch fields := param(t.Param).(type) {
	case map[string]any:
		out.fields = leavesOf(fields, nil)
	case []any:
		for _, f := range fields {
			out.fields = append(out.fields, strings.Split(fmt.Sprint(f), "."))
		}
	default:
		for _, f := range t.Fields {
			out.fields = append(out.fields, strings.Split(f, "."))
		}
	}
	out.makes = t.Manifest != "" || len(out.fields) == 0
	return out, of != nil
}

// leavesOf are the paths of an object that are set.
func leavesOf(fields map[string]any, above []string) (paths [][]string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := append(slices.Clone(above), name)
		if inner, ok := fields[name].(map[string]any); ok && len(inner) > 0 {
			paths = append(paths, leavesOf(inner, path)...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// same: it is the same object, as it is written. Without a name it is all of the kind.
func (t touched) same(o touched) bool {
	return t.group == o.group && t.kind == o.kind && t.namespace == o.namespace && (t.name == o.name || t.name == "" || o.name == "")
}

// changes are the fields of a write that a read would see; a nil path is the whole object.
func (t touched) changes(read touched) (seen [][]string) {
	if len(t.fields) == 0 {
		return [][]string{nil}
	}
	for _, w := range t.fields {
		if len(read.fields) == 0 || slices.ContainsFunc(read.fields, func(r []string) bool { return within(r, w) || within(w, r) || follows(r, w) }) {
			seen = append(seen, w)
		}
	}
	return seen
}

// within: the first path is the second one, or leads further.
func within(path, of []string) bool { return len(path) >= len(of) && slices.Equal(path[:len(of)], of) }

// follows: others write the field when the spec changes.
func follows(read, written []string) bool {
	return written[0] != "metadata" && (read[0] == "status" || slices.Equal(read, []string{"metadata", "generation"}))
}

// covers: a write brings a field to the same value each time that it is done.
func (t touched) covers(field []string) bool {
	return t.makes || field != nil && slices.ContainsFunc(t.fields, func(w []string) bool { return within(field, w) })
}

// writes are what a step may change: of an undo, all that any release changes.
func (c *linter) writes(s *program.Step) (all []touched) {
	actions := []*program.Action{s.Bound}
	if s.Undo != "" {
		actions = nil
		for _, e := range c.def.Spec.Effects {
			actions = append(actions, c.prog.Effects[e.Name].BoundRelease)
		}
	}
	for _, a := range actions {
		if t, known := touches(a.Spec.Writes, a); known {
			all = append(all, t)
		}
	}
	return all
}

// checkRerun finds what a step reads and a later one of the phase changes. A phase may be run
// again from its first step, after any of them: the step reads what the machine itself has
// written then. Not so where a step before it brings the field to the same value each time,
// and not in a steady phase, each look of which is such a run.
func (c *linter) checkRerun(p *program.Phase) {
	if p.Kind == v1alpha1.PhaseSteady {
		return
	}
	for i := range p.StepList {
		s := &p.StepList[i]
		read, known := touches(s.Bound.Spec.Reads, s.Bound)
		if !known {
			continue
		}
		for j := i + 1; j < len(p.StepList); j++ {
			if field, changed := c.disturbs(p, i, j, read); changed {
				c.find(s.Path, "PG106", fmt.Sprintf("step %s reads %s, which the later step %s changes: when %s is run again from its first step, it reads what the machine has written itself",
					s.Label, cmp.Or(strings.Join(field, "."), "an object"), p.StepList[j].Label, p.Name),
					"read it in a phase of its own before this one, and keep it there in an annotation if it is needed later")
				break
			}
		}
	}
}

// disturbs tells of the first field that a step reads and a later one changes, if anything
// depends on what is read.
func (c *linter) disturbs(p *program.Phase, reader, writer int, read touched) (field []string, changed bool) {
	for _, w := range c.writes(&p.StepList[writer]) {
		if !w.same(read) {
			continue
		}
		for _, field := range w.changes(read) {
			if !c.settled(p, reader, w, field) && (p.StepList[reader].Bound.Spec.Reads.Waits || c.matters(p, reader, read)) {
				return field, true
			}
		}
	}
	return nil, false
}

// settled: a step before the reader writes the field, whenever the phase is run.
func (c *linter) settled(p *program.Phase, reader int, written touched, field []string) bool {
	return slices.ContainsFunc(p.StepList[:reader], func(s program.Step) bool {
		return s.IfExpr == nil && s.Undo == "" && slices.ContainsFunc(c.writes(&s), func(w touched) bool { return w.same(written) && w.covers(field) })
	})
}

// matters: something that is done, or where the phase leads, depends on what the step reads.
func (c *linter) matters(p *program.Phase, reader int, read touched) bool {
	for name := range p.StepList[reader].Bound.Spec.Outputs {
		if c.isUsed(p, reader, read, name) {
			return true
		}
	}
	return false
}

// isUsed follows an output, in result until another step replaces it. Whether the object that was read is written does not
// count: it has been written then.
func (c *linter) isUsed(p *program.Phase, reader int, read touched, name string) bool {
	isLast := true
	asks := func(all ...*expr.Expr) bool {
		return slices.ContainsFunc(all, func(e *expr.Expr) bool {
			return slices.ContainsFunc(c.outputsOf(e), func(o output) bool { return o.isOf(p.StepList[reader].Label, name, isLast) })
		})
	}
	if asks(p.StepList[reader].FailWhenExpr, p.StepList[reader].UntilExpr) {
		return true
	}
	for i := reader + 1; i < len(p.StepList); i++ {
		s := &p.StepList[i]
		used := asks(s.IfExpr) && !slices.ContainsFunc(c.writes(s), read.same)
		for _, v := range s.Bound.With {
			v.Each(func(e *expr.Expr) { used = used || asks(e) })
		}
		_, replaces := s.Bound.Spec.Outputs[name]
		before := isLast
		isLast = isLast && !replaces
		if used || asks(s.FailWhenExpr, s.UntilExpr) {
			return true
		}
		isLast = before && (!replaces || s.IfExpr != nil)
	}
	return slices.ContainsFunc(p.Exits, func(x program.Exit) bool { return asks(x.WhenExpr) })
}
