package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ActionSpec declares an action that a machine may name.
type ActionSpec struct {
	// Doc is one sentence for people.
	Doc string
	// Params are the names that `with` may use, and their types.
	Params map[string]ParamType
	// Outputs are the names that the action adds to `result`.
	Outputs []string
}

// ParamType is the type of a `with` value.
type ParamType string

// The types of parameters.
const (
	ParamString   ParamType = "string"
	ParamInt      ParamType = "int"
	ParamDuration ParamType = "duration"
)

// Bindings are the actions and guards that the program has.
type Bindings struct {
	Actions map[string]ActionSpec
	// Guards maps the name of a guard to one sentence for people.
	Guards map[string]string
}

// Machine is a definition bound to actions and guards. It is immutable and
// safe for concurrent use by any number of runs.
type Machine struct {
	def  *Definition
	prog *program
}

// Bind checks that every action, guard, parameter and result that the file
// names exists. The machine is nil when there is a finding.
func Bind(def *Definition, b Bindings) (*Machine, Diagnostics) {
	k := &binder{def: def, b: b}
	for i, e := range def.Spec.Effects {
		k.action(fmt.Sprintf("spec.effects[%d].acquire", i), e.Acquire)
		k.action(fmt.Sprintf("spec.effects[%d].release", i), e.Release)
	}
	for i, f := range def.Spec.Facts {
		k.expr(fmt.Sprintf("spec.facts[%d].expr", i), def.prog.facts[f.Name], nil)
	}
	for i, q := range def.Spec.Requests {
		k.request(fmt.Sprintf("spec.requests[%d]", i), def.prog.requests[q.Name])
	}
	for _, p := range def.prog.order {
		k.phase(p)
	}
	if len(k.diags) > 0 {
		return nil, k.diags.sorted()
	}
	return &Machine{def: def, prog: def.prog}, nil
}

// Unused lists the actions that no step and no effect of any of the machines
// names. A program whose shipped machines leave one unused has dead code or a
// misspelled file; its tests refuse that. An edited file may leave actions out.
func (b Bindings) Unused(defs ...*Definition) []string {
	unused := maps.Clone(b.Actions)
	for _, d := range defs {
		for _, e := range d.Spec.Effects {
			delete(unused, e.Acquire)
			delete(unused, e.Release)
		}
		for _, p := range d.Spec.Phases {
			for _, s := range p.Steps {
				delete(unused, s.Action)
			}
		}
	}
	return slices.Sorted(maps.Keys(unused))
}

type binder struct {
	def   *Definition
	b     Bindings
	diags Diagnostics
}

func (k *binder) find(path, code, message, fix string) {
	k.diags = append(k.diags, k.def.diag(path, code, message, fix))
}

func (k *binder) action(path, name string) bool {
	_, ok := k.b.Actions[name]
	if !ok {
		k.find(path, "PG005", fmt.Sprintf("action %q is not known to this program", name),
			"known actions: "+strings.Join(slices.Sorted(maps.Keys(k.b.Actions)), ", "))
	}
	return ok
}

func (k *binder) request(path string, q *request) {
	k.expr(path+".token", q.token, nil)
	k.expr(path+".valid", q.valid, nil)
	for name, e := range q.params {
		k.expr(path+".params."+name, e, nil)
	}
}

func (k *binder) phase(p *phase) {
	results := map[string]bool{}
	for i, r := range p.require {
		path := fmt.Sprintf("%s.require[%d]", p.path, i)
		k.expr(path+".when", r.when, results)
		k.template(path+".message", r.message, results)
	}
	for _, s := range p.steps {
		k.expr(s.path+".if", s.cond, results)
		if s.Action != "" && k.action(s.path+".action", s.Action) {
			spec := k.b.Actions[s.Action]
			k.params(s, spec)
			for _, out := range spec.Outputs {
				results[out] = true
			}
		}
		k.expr(s.path+".until", s.until, results)
		k.template(s.path+".message", s.message, results)
	}
	for i, x := range p.next {
		path := fmt.Sprintf("%s.next[%d]", p.path, i)
		k.expr(path+".when", x.when, results)
		k.template(path+".message", x.message, results)
	}
	k.template(p.path+".message", p.message, results)
}

func (k *binder) params(s step, spec ActionSpec) {
	for name, value := range s.With {
		want, ok := spec.Params[name]
		path := s.path + ".with." + name
		if !ok {
			k.find(path, "PG005", fmt.Sprintf("action %s has no parameter %q", s.Action, name),
				"parameters: "+strings.Join(slices.Sorted(maps.Keys(spec.Params)), ", "))
			continue
		}
		if !want.accepts(value) {
			k.find(path, "PG005", fmt.Sprintf("parameter %s of %s is %v, not a %s", name, s.Action, value, want), "correct the value")
		}
	}
}

func (k *binder) template(path string, t *template, results map[string]bool) {
	if t == nil {
		return
	}
	for _, p := range t.parts {
		k.expr(path, p.expr, results)
	}
}

// expr checks the names an expression reads. Nil results: none are known there.
func (k *binder) expr(path string, e *expr, results map[string]bool) {
	if e == nil {
		return
	}
	for _, g := range e.reads(varGuards) {
		if _, ok := k.b.Guards[g]; !ok {
			k.find(path, "PG005", fmt.Sprintf("guard %q is not known to this program", g),
				"known guards: "+strings.Join(slices.Sorted(maps.Keys(k.b.Guards)), ", "))
		}
	}
	for _, r := range e.reads(varResult) {
		if results != nil && !results[r] {
			k.find(path, "PG006", fmt.Sprintf("result.%s is an output of no step before this place", r),
				"outputs here: "+strings.Join(slices.Sorted(maps.Keys(results)), ", "))
		}
	}
}
