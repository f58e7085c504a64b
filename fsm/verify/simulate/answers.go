package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Answer is what an action comes to when it is called. Outputs that it does not
// name are zero.
type Answer struct {
	fsm.Result
	// Takes is how long the call lasts.
	Takes time.Duration
	// Times is how many calls it answers; 0 is all that follow.
	Times int
}

// GuardAnswer is what a Go guard says.
type GuardAnswer struct {
	Open bool
	// Seen is what it explains itself with.
	Seen string
	Err  error
	// Times is how many looks it answers; 0 is all that follow.
	Times int
}

type given struct {
	actions map[string]queue[Answer]
	guards  map[string]queue[GuardAnswer]
}

type queue[T any] struct {
	answers []T
	used    int // of the first
}

// next is the answer now, and the queue after it.
func (q queue[T]) next(times func(T) int) (answer T, after queue[T], ok bool) {
	if len(q.answers) == 0 {
		return answer, q, false
	}
	answer = q.answers[0]
	q.used++
	if n := times(answer); n > 0 && q.used >= n {
		q = queue[T]{answers: q.answers[1:]}
	}
	return answer, q, true
}

// Give says what an action answers from now on, front to back; without answers, or
// once they are used up, it answers with zero outputs. The name is the one that
// the machine calls it by: of spec.actions, or of the program. PHASE/STEP, or STEP where no
// action is called so, is more exact, and comes first.
func (g *given) Give(action string, answers ...Answer) {
	g.actions[action] = queue[Answer]{answers: answers}
}

// Once puts an answer before those that were given.
func (g *given) Once(action string, a Answer) {
	a.Times = 1
	old := g.actions[action]
	g.actions[action] = queue[Answer]{answers: append([]Answer{a}, old.answers...)}
}

// GiveGuard says what a Go guard answers from now on, front to back; without
// answers, or once they are used up, it is open.
func (g *given) GiveGuard(guard string, answers ...GuardAnswer) {
	g.guards[guard] = queue[GuardAnswer]{answers: answers}
}

func (w *world) guard(name string) GuardAnswer {
	g, after, ok := w.given.guards[name].next(func(g GuardAnswer) int { return g.Times })
	if !ok {
		w.note("guard "+name, "guard %s is not given: it is open", name)
		return GuardAnswer{Open: true}
	}
	w.given.guards[name] = after
	return g
}

// note says something about the simulation once.
func (j *journal) note(key, format string, args ...any) {
	if !j.noted[key] {
		j.noted[key] = true
		j.event(EventNote, format, args...)
	}
}

// act calls an action.
func (w *world) act(name string, cmd fsm.Decision) fsm.Result {
	a, said := w.answer(name, cmd)
	w.Called = append(w.Called, name)
	text := "act " + v1alpha1.Keyed(name, cmd.Key)
	if len(cmd.With) > 0 {
		text += " " + flow(map[string]any(cmd.With))
	}
	w.tell("%s%s", text, outcome(a.Result, said))
	w.now = w.now.Add(a.Takes)
	w.effect(name, cmd, a.Result)
	return a.Result
}

// answer is what the action answers, with all its outputs, and those that were given.
func (w *world) answer(name string, cmd fsm.Decision) (a Answer, said map[string]any) {
	known := false
	if w.Respond != nil {
		a, known = w.Respond(name, cmd)
	}
	if !known {
		a, known = w.next(append(w.stepNames(cmd), name, cmd.Action)...)
	}
	if a.Err != nil {
		a.Outputs = nil
		return a, nil
	}
	said = a.Outputs
	a.Outputs = Zero(w.Machine.Bindings().Actions[cmd.Action])
	if !known && len(a.Outputs) > 0 {
		w.note("action "+name, "action %s is not given: it answers %s", name, flow(a.Outputs))
	}
	maps.Copy(a.Outputs, said)
	return a, said
}

// stepNames are those of the step that calls an action, the most exact first. What an undo releases has none.
func (w *world) stepNames(cmd fsm.Decision) []string {
	if cmd.Effect != "" {
		return nil
	}
	names := []string{v1alpha1.Keyed(w.Stored.Phase+"/"+cmd.Step, cmd.Key)}
	if cmd.Key != "" {
		names = append(names, v1alpha1.Keyed(cmd.Step, cmd.Key), w.Stored.Phase+"/"+cmd.Step)
	}
	if _, isAction := calls(w.Machine.Program())[cmd.Step]; !isAction {
		names = append(names, cmd.Step)
	}
	return names
}

// next is what was given for an action under one of its names.
func (g *given) next(names ...string) (Answer, bool) {
	for _, name := range names {
		if a, after, ok := g.actions[name].next(func(a Answer) int { return a.Times }); ok {
			g.actions[name] = after
			return a, true
		}
	}
	return Answer{}, false
}

// Zero are the outputs of an action on a day on which there is nothing to tell:
// lists are empty, and numbers 0.
func Zero(spec program.ActionSpec) map[string]any {
	zeros := map[expr.Type]any{expr.TypeString: "", expr.TypeInt: int64(0), expr.TypeNumber: 0.0, expr.TypeBool: false,
		expr.TypeDuration: "0s", expr.TypeStrings: []any{}, expr.TypeObject: map[string]any{}}
	out := map[string]any{}
	for name, t := range spec.Outputs {
		out[name] = zeros[t]
	}
	return out
}

func outcome(o fsm.Result, said map[string]any) string {
	wait, waits := errors.AsType[*fsm.WaitError](o.Err)
	terminal, ends := errors.AsType[*fsm.TerminalError](o.Err)
	switch {
	case o.Err == nil && len(said) > 0:
		return " → " + flow(said)
	case o.Err == nil:
		return ""
	case waits && wait.After > 0:
		return fmt.Sprintf(": wait %s: %s", wait.After, o.Err)
	case waits:
		return fmt.Sprintf(": wait: %s", o.Err)
	case ends:
		return fmt.Sprintf(": terminal %s: %s", terminal.Reason, o.Err)
	}
	return fmt.Sprintf(": %s: %s", o.Class, o.Err)
}

// written is the name by which the machine calls an action: that of the file, not
// that of the program.
func (w *world) written(run *fsm.Run, cmd fsm.Decision) string {
	prog, at := w.Machine.Program(), run.Status()
	effect, _ := v1alpha1.CutKey(cmd.Effect)
	if e, known := prog.Effects[effect]; known && e.BoundRelease.Use == cmd.Action {
		return e.ReleasedBy()
	}
	if p := prog.Phases[at.Phase]; cmd.Effect == "" && p != nil && int(at.StepIndex) < len(p.StepList) {
		return cmp.Or(p.StepList[at.StepIndex].Action, cmd.Action)
	}
	return cmd.Action // as it is on record
}

// effect changes the world as the action would, and checks the ledger.
func (w *world) effect(name string, cmd fsm.Decision, o fsm.Result) {
	undone := cmd.Effect // by an undo
	for _, e := range w.Machine.Definition().Spec.Effects {
		switch {
		case undone != "":
		case name == e.Acquire:
			held := v1alpha1.Keyed(e.Name, cmd.Key)
			if !slices.Contains(w.held(), held) {
				w.defect("%s is called, but %s is not in the stored ledger %v", name, held, w.Stored.HeldNames())
			}
			w.inPlace[held] = true // an action that fails may have done half of it
		case name == e.Release:
			undone = v1alpha1.Keyed(e.Name, cmd.Key)
		}
	}
	if undone != "" && o.Err == nil {
		delete(w.inPlace, undone)
		w.released[undone] = true
	}
	w.checkInvariants()
}
