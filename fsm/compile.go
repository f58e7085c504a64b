package fsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// program is a machine file with every expression compiled and every duration
// parsed. It is immutable.
type program struct {
	phases   map[string]*phase
	order    []*phase
	facts    map[string]*expr
	requests map[string]*request
	effects  map[string]v1alpha1.Effect
	table    *table
}

type phase struct {
	*v1alpha1.Phase
	path    string
	require []require
	steps   []step
	next    []exit
	timeout time.Duration
	poll    time.Duration
	retry   retry
	message *template
}

type require struct {
	v1alpha1.Require
	when    *expr
	message *template
}

type step struct {
	v1alpha1.Step
	name           string
	cond, until    *expr
	wait, poll     time.Duration
	retry          retry
	message        *template
	acquires, path string
	releases       string
}

type exit struct {
	v1alpha1.Exit
	when    *expr
	message *template
}

type retry struct {
	base, max      time.Duration
	factor, jitter float64
	attempts       int32
	to             string
}

type request struct {
	v1alpha1.Request
	token, valid *expr
	params       map[string]*expr
}

// The backoff of a machine that declares none.
var defaultRetry = retry{base: time.Second, max: 5 * time.Minute, factor: 2, jitter: 0.2}

// compiler collects findings while it turns the file into a program.
type compiler struct {
	def   *Definition
	prog  *program
	diags Diagnostics
}

func (c *compiler) find(path, code, message, fix string) {
	c.diags = append(c.diags, c.def.diag(path, code, message, fix))
}

func (c *compiler) run() {
	spec := &c.def.Spec
	c.prog = &program{phases: map[string]*phase{}, facts: map[string]*expr{}, requests: map[string]*request{},
		effects: map[string]v1alpha1.Effect{}}
	for i, e := range spec.Effects {
		path := fmt.Sprintf("spec.effects[%d]", i)
		c.unique(c.prog.effects[e.Name].Name == "", path, "effect", e.Name)
		c.prog.effects[e.Name] = e
	}
	for i, f := range spec.Facts {
		path := fmt.Sprintf("spec.facts[%d]", i)
		c.unique(c.prog.facts[f.Name] == nil, path, "fact", f.Name)
		// Registered after it compiled: a fact sees only the facts before it.
		if e := c.expr(path+".expr", f.Expr, false); e != nil {
			c.prog.facts[f.Name] = e
		}
	}
	c.compileRequests(spec.Requests)
	defPoll := c.duration("spec.defaults.poll", spec.Defaults.Poll)
	defRetry := c.retry("spec.defaults.retry", spec.Defaults.Retry, defaultRetry)
	for i := range spec.Phases {
		p := c.phase(fmt.Sprintf("spec.phases[%d]", i), &spec.Phases[i], defPoll, defRetry)
		c.unique(c.prog.phases[p.Name] == nil, p.path+".name", "phase", p.Name)
		c.prog.phases[p.Name] = p
		c.prog.order = append(c.prog.order, p)
	}
}

func (c *compiler) unique(isNew bool, path, what, name string) {
	switch {
	case name == "":
		c.find(path, "PG000", what+" without a name", "give it a name")
	case !isNew:
		c.find(path, "PG000", fmt.Sprintf("%s %q is declared twice", what, name), "rename or remove one")
	}
}

func (c *compiler) compileRequests(requests []v1alpha1.Request) {
	for i, r := range requests {
		path := fmt.Sprintf("spec.requests[%d]", i)
		c.unique(c.prog.requests[r.Name] == nil, path, "request", r.Name)
		compiled := &request{Request: r, params: map[string]*expr{}}
		compiled.token = c.expr(path+".token", r.Token, false)
		if r.Valid != "" {
			compiled.valid = c.expr(path+".valid", r.Valid, true)
		}
		for name, text := range r.Params {
			compiled.params[name] = c.expr(path+".params."+name, text, false)
		}
		c.prog.requests[r.Name] = compiled
	}
}

func (c *compiler) phase(path string, src *v1alpha1.Phase, defPoll time.Duration, defRetry retry) *phase {
	p := &phase{Phase: src, path: path, poll: defPoll}
	if src.Poll != "" {
		p.poll = c.duration(path+".poll", src.Poll)
	}
	p.retry = c.retry(path+".retry", src.Retry, defRetry)
	if src.Timeout != nil {
		p.timeout = c.duration(path+".timeout.after", src.Timeout.After)
	}
	p.message = c.template(path+".message", src.Message)
	for i, r := range src.Require {
		at := fmt.Sprintf("%s.require[%d]", path, i)
		p.require = append(p.require, require{r, c.expr(at+".when", r.When, true), c.template(at+".message", r.Message)})
	}
	for i, s := range src.Steps {
		p.steps = append(p.steps, c.step(fmt.Sprintf("%s.steps[%d]", path, i), s, p))
	}
	for i, x := range src.Next {
		at := fmt.Sprintf("%s.next[%d]", path, i)
		e := exit{Exit: x, message: c.template(at+".message", x.Message)}
		if x.When != "" {
			e.when = c.expr(at+".when", x.When, true)
		}
		p.next = append(p.next, e)
	}
	c.phaseValues(p)
	return p
}

func (c *compiler) phaseValues(p *phase) {
	c.oneOf(p.path+".kind", p.Kind, "", "progressing", "waiting", "steady")
	c.oneOf(p.path+".terminal", p.Terminal, "", "success", "failure")
	for i, e := range p.OnError {
		if !slices.Contains(classes, Class(e.Is)) {
			c.find(fmt.Sprintf("%s.onError[%d].is", p.path, i), "PG000", fmt.Sprintf("unknown error class %q", e.Is),
				fmt.Sprintf("write one of %v", classes))
		}
	}
	for i, k := range p.Keeps {
		if _, ok := c.prog.effects[k]; !ok {
			c.find(fmt.Sprintf("%s.keeps[%d]", p.path, i), "PG005", fmt.Sprintf("effect %q is not declared", k), "declare it under spec.effects")
		}
	}
}

func (c *compiler) oneOf(path, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		c.find(path, "PG000", fmt.Sprintf("%s is %q", path, got), fmt.Sprintf("write one of %q", allowed[1:]))
	}
}

func (c *compiler) step(path string, src v1alpha1.Step, p *phase) step {
	s := step{Step: src, path: path, poll: p.poll, retry: c.retry(path+".retry", src.Retry, p.retry)}
	s.name = c.stepName(path, src)
	s.wait = c.duration(path+".wait", src.Wait)
	if src.Poll != "" {
		s.poll = c.duration(path+".poll", src.Poll)
	}
	if src.If != "" {
		s.cond = c.expr(path+".if", src.If, true)
	}
	if src.Until != "" {
		s.until = c.expr(path+".until", src.Until, true)
	}
	s.message = c.template(path+".message", src.Message)
	for _, e := range c.def.Spec.Effects {
		switch src.Action {
		case "":
		case e.Acquire:
			s.acquires = e.Name
		case e.Release:
			s.releases = e.Name
		}
	}
	return s
}

// stepName is the given name, or what the step does.
func (c *compiler) stepName(path string, src v1alpha1.Step) string {
	kinds := 0
	name := src.Action
	for does, set := range map[string]string{"": src.Action, "undo": src.Undo, "wait": src.Wait} {
		if set != "" {
			kinds++
			name = firstOf(does, name)
		}
	}
	if kinds != 1 {
		c.find(path, "PG000", "a step is exactly one of action, undo and wait", "split it into several steps")
	}
	if src.Undo != "" && src.Undo != "held" {
		c.find(path+".undo", "PG000", fmt.Sprintf("undo: %s is not known", src.Undo), "write undo: held")
	}
	return firstOf(src.Name, name)
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func (c *compiler) duration(path, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		c.find(path, "PG000", fmt.Sprintf("%q is not a positive duration", text), "write for example 10s, 5m or 24h")
		return 0
	}
	return d
}

func (c *compiler) retry(path string, src *v1alpha1.Retry, base retry) retry {
	if src == nil {
		return base
	}
	r := base
	if d := c.duration(path+".base", src.Base); d > 0 {
		r.base = d
	}
	if d := c.duration(path+".max", src.Max); d > 0 {
		r.max = d
	}
	if src.Factor != 0 {
		r.factor = src.Factor
	}
	if src.Jitter != 0 {
		r.jitter = src.Jitter
	}
	r.attempts, r.to = src.Attempts, src.To
	if r.factor < 1 || r.jitter < 0 || r.jitter > 1 || r.attempts < 0 {
		c.find(path, "PG000", "factor must be at least 1, jitter between 0 and 1, attempts not negative", "correct the backoff")
	}
	if r.to != "" && r.attempts == 0 {
		c.find(path+".to", "PG000", "retry.to without attempts is never reached", "add attempts: N")
	}
	return r
}

func (c *compiler) expr(path, text string, wantBool bool) *expr {
	e, cerr := compile(text)
	if cerr != nil {
		c.findExpr(path, "PG006", cerr.message, cerr.column)
		return nil
	}
	if wantBool && !e.isBool() {
		c.find(path, "PG007", fmt.Sprintf("guard %q is %s, not a boolean", text, e.out), "compare it with something")
	}
	c.names(path, e)
	return e
}

// names refuses facts and requests that nobody declared; results and Go guards
// are checked when the machine is bound.
func (c *compiler) names(path string, e *expr) {
	for _, name := range e.reads(varFacts) {
		if c.prog.facts[name] == nil {
			c.find(path, "PG006", fmt.Sprintf("facts.%s is not declared before this place", name), "declare it under spec.facts, in order")
		}
	}
	for _, name := range e.reads(varRequest) {
		if c.prog.requests[name] == nil {
			c.find(path, "PG006", fmt.Sprintf("request.%s is not declared", name), "declare it under spec.requests")
		}
	}
}

func (c *compiler) template(path, text string) *template {
	if text == "" {
		return nil
	}
	t, cerr := parseTemplate(text)
	if cerr != nil {
		c.findExpr(path, "PG006", cerr.message, cerr.column)
		return nil
	}
	for _, p := range t.parts {
		if p.expr != nil {
			c.names(path, p.expr)
		}
	}
	return t
}

// findExpr points inside the expression: the text begins after its quote.
func (c *compiler) findExpr(path, code, message string, column int) {
	x := c.def.diag(path, code, message, "correct the CEL expression")
	x.Column += column
	if c.def.at[path].quoted {
		x.Column++
	}
	c.diags = append(c.diags, x)
}
