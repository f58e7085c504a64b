package simulate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Result is a scenario that was played.
type Result struct {
	Scenario   string     `json:"scenario"`
	Machine    string     `json:"machine"`
	Revision   string     `json:"revision"`
	Transcript Transcript `json:"transcript"`
	// End tells what a person sees of the object at the end.
	End string `json:"end" printable:"lines"`
	// Failures are expectations that did not hold; the script stops at the first step
	// that has some.
	Failures []Failure `json:"failures"`
}

// Failure is an expectation that did not hold, or a defect.
type Failure struct {
	File string `json:"file"`
	diag.Pos
	Text string `json:"text" printable:"lines"`
}

func (f Failure) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
}

// Play runs a scenario. The result is nil when it does not fit the machine: the
// findings say why. It may be called any number of times.
func (s *Scenario) Play(m *fsm.Machine) (*Result, diag.Diagnostics) {
	if diags := s.Check(m); len(diags) > 0 {
		return nil, diags
	}
	p := &player{s: s, w: s.world(m)}
	p.w.Tell = p.r.tell
	p.play()
	return &Result{Scenario: s.File, Machine: m.Name(), Revision: m.Revision(),
		Transcript: p.r.merged(), End: p.w.Describe(), Failures: p.failures}, nil
}

// Crashed plays a scenario that fits the machine once undisturbed, and once more
// for each place where the driver can be killed. Each crash that changes the end,
// or brings about a defect, is a failure: of the step of the script that failed, if one did. It answers how many crashes there
// were; tell, where it is not nil, hears after each how many have been.
func (s *Scenario) Crashed(m *fsm.Machine, tell func(crashes int)) (int, []Failure) {
	failed, played := map[*Fake][]Failure{}, -1
	crashes, changed := CrashEverywhere(func() *Fake { return s.world(m) }, func(w *Fake) {
		p := &player{s: s, w: w}
		p.play()
		failed[w] = p.failures
		if played++; tell != nil {
			tell(played)
		}
	})
	failures := make([]Failure, len(changed))
	for i, d := range changed {
		failures[i] = Failure{File: s.File, Pos: diag.Pos{Line: 1, Column: 1}, Text: d.String()}
		if all := failed[d.world]; len(all) > 0 && len(d.Defects) == 0 {
			failures[i].Pos, failures[i].Text = all[0].Pos, fmt.Sprintf("%s; and then %s", d, all[0].Text)
		}
	}
	return crashes, failures
}

// world is the one that a scenario begins with; Check found that it can be made.
func (s *Scenario) world(m *fsm.Machine) *Fake {
	w, err := New(m, s.Object)
	if err != nil {
		panic(err)
	}
	w.give(&s.Given)
	return w
}

// give lets actions and guards answer what a file says.
func (g *given) give(said *Given) {
	for name, list := range said.Actions {
		answers := make([]Answer, len(list))
		for i, a := range list {
			answers[i] = a.answer(i == len(list)-1)
		}
		g.Give(name, answers...)
	}
	for name, list := range said.Guards {
		answers := make([]GuardAnswer, len(list))
		for i, a := range list {
			answers[i] = GuardAnswer{Open: a.Open, Seen: a.Seen, Times: times(a.Times, i == len(list)-1)}
			if a.Error != "" {
				answers[i].Err = errors.New(a.Error)
			}
		}
		g.GiveGuard(name, answers...)
	}
}

func (a ActionAnswer) answer(last bool) Answer {
	out := Answer{Takes: duration(a.Takes), Times: times(a.Times, last)}
	switch {
	case a.Wait != "":
		out.Err = &fsm.WaitError{After: duration(a.After), Message: a.Wait}
	case a.Terminal != "":
		out.Err, out.Class = fsm.Terminal(a.Terminal, "%s", a.Message), program.ClassTerminal
	case a.Error != "":
		out.Err, out.Class = errors.New(a.Message), program.Class(a.Error)
	default:
		out.Outputs = a.Outputs
	}
	return out
}

// times is how many calls an answer of a list serves: the last one all that follow.
func times(said int32, last bool) int {
	if said == 0 && !last {
		return 1
	}
	return int(said)
}

// player goes through a script.
type player struct {
	s        *Scenario
	w        *Fake
	r        recorder
	failures []Failure
	// news is something that the machine has not looked at yet.
	news bool
}

func (p *player) play() {
	p.news = true
	for i, step := range p.s.Script {
		path := fmt.Sprintf("script[%d]", i)
		p.r.step(words(step))
		if p.do(path, step); len(p.failures) > 0 {
			return
		}
	}
	end := fmt.Sprintf("script[%d]", len(p.s.Script)-1)
	if p.news {
		p.r.step("the end of the script")
		p.run(end, 0, nil)
	}
	p.noCrash(end)
}

// noCrash finds a crash that was asked for and never came.
func (p *player) noCrash(path string) {
	if c := p.w.crash; c != nil {
		p.fail(path, "the crash %s before this step never came", c)
	}
}

func (p *player) do(path string, s Step) {
	switch {
	case s.Advance != "":
		p.run(path, duration(s.Advance), nil)
	case s.Until != nil:
		p.until(path+".until", s.Until)
	case s.Expect != nil:
		p.expect(path+".expect", s.Expect)
	case s.Given != nil:
		p.w.give(s.Given)
	case s.Crash != nil:
		p.noCrash(path)
		p.w.Crash(s.Crash.Before+s.Crash.After, s.Crash.After != "", duration(s.Crash.Down))
	case s.Conflict:
		p.w.ConflictNext = true
	default:
		p.news = true
		p.change(path, s)
	}
}

// change is something that happens to the object.
func (p *player) change(path string, s Step) {
	switch {
	case p.w.Gone():
		p.fail(path, "the object is gone: nothing can happen to it any more")
	case s.Delete:
		p.w.Delete()
	case s.Annotate != nil:
		p.w.Annotate(s.Annotate)
	case s.Wake != "":
		p.w.Wake()
	}
	for _, field := range slices.Sorted(maps.Keys(s.Set)) {
		if err := p.w.Set(field, s.Set[field]); err != nil {
			p.fail(path, "%s", err)
		}
	}
}

func (p *player) until(path string, e *Expect) {
	within := cmp.Or(duration(e.Within), defaultWithin)
	p.run(path, within, func() bool { return len(e.missing(p.w)) == 0 })
	missing := e.missing(p.w)
	if p.w.behind() { // a crash came before the view was written, and the next look repairs it
		_, _ = p.w.Reconcile()
	}
	if len(p.failures) == 0 {
		p.compare(path, missing, fmt.Sprintf(" within %s", within))
	}
}

func (p *player) expect(path string, e *Expect) {
	if p.news {
		p.run(path, 0, nil)
	}
	p.compare(path, e.missing(p.w), "")
}

func (p *player) compare(path string, missing []string, within string) {
	if len(missing) > 0 {
		p.fail(path, "expected%s: %s", within, strings.Join(missing, "; "))
	}
}

// run lets time pass; the machine has looked at all news then.
func (p *player) run(path string, d time.Duration, stop func() bool) {
	p.news = false
	if err := p.w.Run(d, stop); err != nil {
		p.fail(path, "%s: it is in phase %s", err, cmp.Or(p.w.Stored.Phase, "·"))
	}
	for _, defect := range p.w.Defects {
		p.fail(path, "defect: %s", defect)
	}
}

func (p *player) fail(path, format string, args ...any) {
	p.failures = append(p.failures, Failure{File: p.s.File, Pos: p.s.Pos(path), Text: fmt.Sprintf(format, args...)})
}

// missing says what of the expectation does not hold: what was expected, and what was seen.
func (e *Expect) missing(w *Fake) []string {
	var out []string
	want := func(is bool, name, want, got string) {
		if !is {
			out = append(out, fmt.Sprintf("%s %s, got %s", name, want, got))
		}
	}
	st := w.Stored
	want(e.Phase == "" || e.Phase == st.Phase, "phase", e.Phase, st.Phase)
	want(e.Step == "" || e.Step == st.Step, "step", e.Step, st.Step)
	want(strings.Contains(w.Shown.Message, e.Message), "message", fmt.Sprintf("with %q", e.Message), fmt.Sprintf("%q", w.Shown.Message))
	want(e.Reason == "" || slices.Contains(reasonsOf(w.Shown), e.Reason), "reason", e.Reason, strings.Join(reasonsOf(w.Shown), ", "))
	for _, name := range slices.Sorted(maps.Keys(e.Conditions)) {
		is := meta.IsStatusConditionTrue(w.Shown.Conditions, name)
		want(is == e.Conditions[name], "condition", fmt.Sprintf("%s=%t", name, e.Conditions[name]), fmt.Sprint(is))
	}
	want(e.Held == nil || slices.Equal(sorted(e.Held), sorted(st.HeldNames())), "held", list(e.Held), list(st.HeldNames()))
	want(e.InPlace == nil || slices.Equal(sorted(e.InPlace), w.InPlace()), "in place", list(e.InPlace), list(w.InPlace()))
	values := func(root string, wanted map[string]any, got func(name string) string) {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			want(got(name) == flow(wanted[name]), root+"."+name, flow(wanted[name]), got(name))
		}
	}
	values("state", e.State, func(name string) string { return valueOf(st.State, name) })
	values("status", e.Status, func(name string) string { return flow(w.Fields[name]) })
	path := w.Ending().Path
	want(e.Path == nil || slices.Equal(e.Path, path), "path", list(e.Path), list(path))
	want(e.Gone == nil || *e.Gone == w.Gone(), "gone", fmt.Sprint(e.Gone != nil && *e.Gone), fmt.Sprint(w.Gone()))
	return out
}

// valueOf is a state value as a file would have it; one that cannot be read is none.
func valueOf(state, name string) string {
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(state), &values); err != nil || values[name] == nil {
		return "none"
	}
	return flow(values[name])
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// words writes a step as the file does.
func words(s Step) string {
	return expr.Clip(strings.TrimSuffix(strings.TrimPrefix(flow(s), "{"), "}"), maxText)
}

// Write prints a result for people: the transcript, the end, and what failed.
func (r *Result) Write(out io.Writer) {
	fmt.Fprintf(out, "%s: machine %s\n\n", r.Scenario, r.Machine)
	r.Transcript.Write(out)
	fmt.Fprintf(out, "\nin the end: %s\n", r.End)
	for _, f := range r.Failures {
		fmt.Fprintf(out, "FAILED %s\n", f)
	}
}
