package program

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// The backoff of a machine that declares none.
var defaultRetry = Backoff{Base: time.Second, Max: 5 * time.Minute, Factor: 2, Jitter: 0.2}

func (c *compiler) run() {
	spec := &c.def.Spec
	c.prog = &Program{Phases: map[string]*Phase{}, Variables: map[string]*expr.Expr{}, State: map[string]StateValue{}, Requests: map[string]*Request{},
		actions: map[string]*Action{}, Effects: map[string]Effect{}, InText: map[string]bool{}, StepsRead: map[string]bool{}, Self: c.b.Self}
	c.stateRead = map[string]bool{}
	c.state(spec.State)
	c.variables(spec.Variables)
	c.compileRequests(spec.Requests)
	c.status(spec.Status)
	c.actions(spec.Actions)
	c.effects(spec.Effects)
	c.limit("spec.effects", len(spec.Effects), v1alpha1.EffectLimit)
	c.limit("spec.requests", len(spec.Requests), v1alpha1.RequestLimit)
	defPoll := c.duration("spec.defaults.poll", spec.Defaults.Poll)
	defRetry := c.retry("spec.defaults.retry", spec.Defaults.Retry, defaultRetry)
	for i := range spec.Phases {
		p := c.phase(fmt.Sprintf("spec.phases[%d]", i), &spec.Phases[i], defPoll, defRetry)
		c.unique(p.Path, "phase", p.Name)
		if c.prog.Phases[p.Name] == nil { // the graph is that of the first of two
			c.prog.Phases[p.Name] = p
			c.prog.Order = append(c.prog.Order, p)
		}
	}
	c.keyed()
	c.recovery(spec.Recover)
	c.invariants(spec.Invariants)
	c.unread()
}

// variables are read in phases and elsewhere; which results there are depends on where.
func (c *compiler) variables(variables []v1alpha1.Named) {
	c.scope.AnyResult = true
	for i, f := range variables {
		path := fmt.Sprintf("spec.variables[%d]", i)
		c.unique(path, "variable", f.Name)
		c.selectable(path, "a variable", f.Name)
		e := c.expr(path+".expr", f.Expr, false)
		// Known after it compiled: a variable sees only the variables before it.
		c.prog.Variables[f.Name] = e
		c.scope.Fields(expr.VarVariables)[f.Name] = expr.TypeOf(e)
	}
	c.scope.NoResults()
}

func (c *compiler) actions(actions []v1alpha1.NamedAction) {
	compiled := map[string]*Action{} // apart: one named action does not use another
	c.scope.Item = true              // a step that has none is told
	defer func() { c.scope.Item = false }()
	for i, a := range actions {
		path := fmt.Sprintf("spec.actions[%d]", i)
		c.unique(path, "action", a.Name)
		c.selectable(path, "an action", a.Name)
		if _, taken := c.b.Actions[a.Name]; taken {
			c.find(path+".name", "PG000", fmt.Sprintf("%s is an action of the program", a.Name), "choose another name")
		}
		found := c.action(a.Use)
		if found.Use == "" {
			c.unknownAction(path+".use", a.Use)
		}
		compiled[a.Name] = &Action{Use: found.Use, Spec: found.Spec, With: c.with(path, a.With, nil)}
	}
	c.prog.actions = compiled
}

// with compiles parameters and lays them over those that are there already.
func (c *compiler) with(path string, values map[string]any, base map[string]*expr.Value) map[string]*expr.Value {
	over := map[string]*expr.Value{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		over[name] = expr.NewValue(path+".with."+name, values[name], c.template)
	}
	return expr.Overlay(base, over)
}

func (c *compiler) effects(effects []v1alpha1.Effect) {
	owner := map[string]string{} // of an action
	for i, e := range effects {
		path := fmt.Sprintf("spec.effects[%d]", i)
		c.unique(path, "effect", e.Name)
		c.selectable(path, "an effect", e.Name)
		c.checkShown(path+".showAs", e.ShowAs)
		acquire, release := c.action(e.Acquire), c.action(e.Release)
		if e.Release == "" {
			release, _ = c.inverse(acquire)
		}
		c.prog.Effects[e.Name] = Effect{Effect: e, BoundAcquire: acquire, BoundRelease: release}
		for _, action := range []string{e.Acquire, e.Release} {
			if action == "" {
				continue
			}
			// One name is written to the ledger per step; a second effect of the
			// same action would leak.
			if first, taken := owner[action]; taken {
				c.find(path, "PG000", fmt.Sprintf("action %s belongs to effect %s already", action, first), "give each effect its own actions")
			}
			owner[action] = e.Name
		}
	}
}

func (c *compiler) compileRequests(requests []v1alpha1.Request) {
	for i, r := range requests {
		path := fmt.Sprintf("spec.requests[%d]", i)
		c.unique(path, "request", r.Name)
		c.selectable(path, "a request", r.Name)
		compiled := &Request{Request: r, ParamExprs: map[string]*expr.Expr{}, TokenExpr: c.expr(path+".token", r.Token, false)}
		if t := compiled.TokenExpr; t != nil && t.Out.Kind() != types.StringKind && t.Out.Kind() != types.DynKind {
			c.find(path+".token", "PG006", fmt.Sprintf("the token is %s, not a string", t.Out), "write string(…), or orValue(\"\") for an optional")
		}
		compiled.ValidExpr = c.expr(path+".valid", r.Valid, true)
		if r.Record != nil {
			compiled.Recorded, _ = c.compile(fmt.Sprintf("self.metadata.?annotations[?%q].orValue(\"\")", r.Record.Annotation))
		}
		params := map[string]*cel.Type{}
		for _, name := range slices.Sorted(maps.Keys(r.Params)) {
			compiled.ParamExprs[name] = c.expr(path+".params."+name, r.Params[name], false)
			params[name] = expr.TypeOf(compiled.ParamExprs[name])
		}
		c.prog.Requests[r.Name] = compiled
		this := expr.VarRequest + "." + r.Name
		c.scope.Fields(expr.VarRequest)[r.Name] = c.scope.Define(this, map[string]*cel.Type{
			"pending": cel.BoolType, "token": cel.StringType, "params": c.scope.Define(this+".params", params)})
	}
}

func (c *compiler) phase(path string, src *v1alpha1.Phase, defPoll time.Duration, defRetry Backoff) *Phase {
	p := &Phase{Phase: src, Path: path, PollEvery: defPoll}
	if src.Poll != "" {
		p.PollEvery = c.duration(path+".poll", src.Poll)
	}
	if defRetry.To == src.Name { // the phase that all others give up to
		defRetry.To = ""
	}
	p.Backoff = c.retry(path+".retry", src.Retry, defRetry)
	c.scope.NoResults()
	if t := src.Timeout; t != nil {
		p.TimeoutAfter, p.TimeoutExpr = c.bounded(path+".timeout.after", t.After, path+".timeout.max", t.Max)
		c.unbounded(path+".timeout.max", t.Max, t.After)
	}
	for i, r := range src.Require {
		at := fmt.Sprintf("%s.require[%d]", path, i)
		p.Requirements = append(p.Requirements, Requirement{r, c.expr(at+".when", r.When, true), c.template(at+".message", r.Message)})
	}
	for i, s := range src.Steps {
		p.StepList = append(p.StepList, c.step(fmt.Sprintf("%s.steps[%d]", path, i), s, p))
	}
	p.External = slices.ContainsFunc(p.StepList, c.external)
	for i, x := range src.Next {
		at := fmt.Sprintf("%s.next[%d]", path, i)
		text := c.template(at+".message", x.Message)
		p.Exits = append(p.Exits, Exit{x, c.expr(at+".when", x.When, true), text, c.assignments(at+".set", x.Set)})
	}
	c.phaseErrors(p)
	p.Text = c.template(path+".message", src.Message)
	c.phaseValues(p)
	c.phaseWords(p)
	p.ways = p.listEdges()
	p.Revision = c.phaseRevision(p)
	return p
}

// phaseErrors compiles what is assigned where a phase is left by an error or its timeout.
func (c *compiler) phaseErrors(p *Phase) {
	c.scope.Error = true
	defer func() { c.scope.Error = false }()
	for i, e := range p.OnError {
		p.Catches = append(p.Catches, Catch{e, c.assignments(fmt.Sprintf("%s.onError[%d].set", p.Path, i), e.Set)})
	}
	if t := p.Timeout; t != nil {
		p.TimeoutAssigns = c.assignments(p.Path+".timeout.set", t.Set)
	}
}

func (c *compiler) phaseValues(p *Phase) {
	c.oneOf(p.Path+".kind", string(p.Kind), "", string(v1alpha1.PhaseProgressing), string(v1alpha1.PhaseWaiting), string(v1alpha1.PhaseSteady))
	c.oneOf(p.Path+".terminal", string(p.Terminal), "", string(v1alpha1.PhaseSuccess), string(v1alpha1.PhaseFailure))
	for i, e := range p.OnError {
		if !slices.Contains(classes, Class(e.Is)) {
			c.find(fmt.Sprintf("%s.onError[%d].is", p.Path, i), "PG000", fmt.Sprintf("unknown error class %q", e.Is),
				fmt.Sprintf("write one of %v", classes))
		}
	}
	c.phaseSense(p)
	for i, k := range p.Keeps {
		if _, ok := c.prog.Effects[k]; !ok {
			c.find(fmt.Sprintf("%s.keeps[%d]", p.Path, i), "PG005", fmt.Sprintf("effect %q is not declared", k), "declare it under spec.effects")
		}
	}
}

// phaseSense refuses what would be read and then have no effect.
func (c *compiler) phaseSense(p *Phase) {
	if p.Timeout != nil {
		c.timeoutSense(p.Path+".timeout", p.Timeout)
	}
	if len(p.Require) > 0 && (p.Terminal != "" || p.Deletion) {
		c.find(p.Path+".require", "PG000", "require is never checked in a terminal or a deletion phase", "remove it")
	}
	for i, x := range p.Exits {
		broken := x.When != "" && x.WhenExpr == nil // finding enough
		if p.Terminal != "" && !broken && len(x.WhenExpr.Reads(expr.VarRequest)) == 0 {
			c.find(fmt.Sprintf("%s.next[%d]", p.Path, i), "PG000", "an exit of a terminal phase that no request opens",
				"write when: 'request.NAME.pending', or make the phase kind: steady")
		}
	}
}

func (f *findings) timeoutSense(path string, t *v1alpha1.Timeout) {
	switch {
	case (t.To == "") == (t.Stalled == ""):
		f.find(path, "PG000", "a timeout has exactly one of to and stalled", "add to: PHASE, or stalled: REASON")
	case t.To == "" && len(t.Set) > 0:
		f.find(path+".set", "PG000", "a timeout that leads nowhere assigns nothing", "remove it, or add to: PHASE in place of stalled")
	}
}

func (f *findings) oneOf(path, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		f.find(path, "PG000", fmt.Sprintf("%s is %q", path, got), fmt.Sprintf("write one of %q", allowed[1:]))
	}
}

func (c *compiler) step(path string, src v1alpha1.Step, p *Phase) Step {
	s := Step{Step: src, Path: path, Label: StepName(src), PollEvery: p.PollEvery, Backoff: c.retry(path+".retry", src.Retry, p.Backoff)}
	if Count(src.Action != "", src.Undo != "", src.Wait != "") != 1 {
		c.find(path, "PG000", "a step is exactly one of action, undo and wait", "split it into several steps")
	}
	s.WaitFor, s.WaitExpr = c.bounded(path+".wait", src.Wait, path+".max", src.Max)
	c.timeLimit(&s, p)
	if src.Poll != "" {
		s.PollEvery = c.duration(path+".poll", src.Poll)
	}
	s.IfExpr = c.expr(path+".if", src.If, true)
	s.Acquires, s.Releases = effectsOf(src.Action, c.def.Spec.Effects)
	s.Loop = c.loop(path+".forEach", src.ForEach)
	found, before := c.action(src.Action), c.scope.Results()
	c.scope.Item = s.Loop != nil
	s.Bound = &Action{Use: found.Use, Spec: found.Spec, With: c.with(path, src.With, found.With)}
	c.outputs(s, p)
	s.FailWhenExpr = c.expr(path+".failWhen", src.FailWhen, true)
	s.UntilExpr = c.expr(path+".until", src.Until, true)
	c.checkInARow(&s, p)
	c.checkFailWhen(&s)
	c.scope.Item = false
	if s.Loop != nil { // what one item has said is forgotten with the next
		c.scope.KeepResults(before)
		c.scope.AddResults(LoopOutputs, nil, s.If == "")
		c.scope.AddStep(s.Label, LoopOutputs, nil)
	}
	if s.If != "" {
		c.scope.MayBeSkipped(s.Label)
	}
	s.KeysExpr = c.list(path+".keys", src.Keys)
	s.Text = c.template(path+".message", src.Message)
	s.ID = stepID(s, p)
	return s
}

// outputs are results from here on. Those of an action that is not known could be
// any: that it is not known is finding enough.
func (c *compiler) outputs(s Step, p *Phase) {
	c.scope.AnyResult = c.scope.AnyResult || s.Action != "" && s.Bound.Use == ""
	var shapes map[string]expr.Shape
	if s.Bound.Spec.Shapes != nil {
		shapes = s.Bound.Spec.Shapes(s.Bound.Written())
	}
	c.scope.AddResults(s.Bound.Spec.Outputs, shapes, s.If == "")
	if s.Loop == nil {
		c.scope.AddStep(s.Label, s.Bound.Spec.Outputs, shapes)
	}
	for name, t := range s.Bound.Spec.Outputs {
		if t == expr.TypeNumber || t == expr.TypeDuration {
			if p.Converts == nil {
				p.Converts = map[string]expr.Type{}
			}
			p.Converts[name] = t
		}
	}
}

// external tells whether a step may call something outside the cluster: an undo, if a release does.
func (c *compiler) external(s Step) bool {
	if s.Undo == "" {
		return s.Bound.Spec.External
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(c.prog.Effects)), func(e Effect) bool { return e.BoundRelease.Spec.External })
}

// StepName is what a status calls a step.
func StepName(s v1alpha1.Step) string {
	if s.Undo != "" {
		return cmp.Or(s.Name, "undo")
	}
	return cmp.Or(s.Name, s.Action, "wait")
}

// stepID does not change when steps are added or moved.
func stepID(s Step, p *Phase) string {
	if s.Action != s.Bound.Use {
		return s.Action
	}
	return p.Name + "/" + s.Label
}

// effectsOf names the effect that an action takes, and the one it releases.
func effectsOf(action string, effects []v1alpha1.Effect) (acquires, releases string) {
	for _, e := range effects {
		switch action {
		case "":
		case e.Acquire:
			acquires = e.Name
		case e.Release:
			releases = e.Name
		}
	}
	return acquires, releases
}
