package simulation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// enough is the time in which a machine must come to an end once nothing fails any
// more: the longest pause after an error is 5 minutes.
const enough = 3 * time.Hour

// play is one schedule being played.
type play struct {
	w     *simulate.Fake
	truth *truth
	// machines are those that the file may change to; the first is in force at first,
	// the last in the end, and knows every phase of the others.
	machines []*fsm.Machine
	faults   schedule
	event    int
	// pending is what an action will go on saying.
	pending map[string][]simulate.Answer
	// outage is how long every action fails.
	outage time.Time
	asked  int
	slept  time.Time // when the last look came to its end
	// phase and transitions are what the last look found.
	phase       string
	transitions int
	// lost is the state that was deleted by hand, to be restored after some looks more.
	lost    *v1alpha1.MachineStatus
	backup  int
	planted defect
	wrong   string
}

// defect is one of the engine or of the driver.
type defect string

const (
	none        defect = ""
	deedFirst   defect = "the deed is done before it is on record"
	viewTrusted defect = "a pass begins with the view instead of the state"
)

// run plays a schedule and answers what is wrong, or nothing.
func run(s schedule, machines []*fsm.Machine, planted defect, tell func(simulate.Event)) string {
	w, err := simulate.New(machines[0], map[string]any{"metadata": map[string]any{"name": "to-v3"}, "spec": map[string]any{"type": "APIServerToCRDs"}})
	if err != nil {
		return err.Error()
	}
	p := &play{w: w, truth: newTruth(machines[0]), machines: machines, faults: slices.Clone(s), pending: map[string][]simulate.Answer{}, planted: planted}
	w.Tell = p.hear(tell)
	w.Respond, w.Interrupt, w.TrustView = p.respond, p.interrupt, planted == viewTrusted
	p.storm()
	p.calm()
	return p.wrong
}

func (p *play) fail(format string, args ...any) {
	if p.wrong == "" {
		p.wrong = fmt.Sprintf(format, args...)
	}
}

// next is the first fault of some kinds that is due.
func (p *play) next(kinds ...kind) (fault, bool) {
	i := slices.IndexFunc(p.faults, func(f fault) bool { return f.At <= p.event && slices.Contains(kinds, f.Do) })
	if i < 0 {
		return fault{}, false
	}
	f := p.faults[i]
	p.faults = slices.Delete(p.faults, i, i+1)
	if p.w.Tell != nil {
		p.w.Tell(simulate.Event{At: p.w.Now().Sub(simulate.Epoch), Kind: simulate.EventNote, Text: f.String()})
	}
	return f, true
}

// storm lasts until every fault has come. One that waits for a command comes to
// nothing where the machine rests for good.
func (p *play) storm() {
	for quiet := 0; len(p.faults) > 0 && quiet < 3 && !p.over(); quiet++ {
		left := len(p.faults)
		p.look(10 * time.Minute)
		if len(p.faults) < left {
			quiet = -1
		}
		p.event = max(p.event, p.faults.first())
	}
	p.faults = nil
	if left := p.outage.Sub(p.w.Now()); left > 0 && !p.over() {
		p.look(left)
	}
}

func (s schedule) first() int {
	if len(s) == 0 {
		return 0
	}
	return s[0].At
}

func (p *play) over() bool { return p.wrong != "" || p.w.Over() }

func (p *play) look(d time.Duration) {
	p.w.Wake()
	if err := p.w.Run(d, p.between); err != nil {
		p.fail("%s, in phase %s: %s", err, p.w.Stored.Phase, p.w.Shown.Message)
	}
}

// calm is when nothing goes wrong any more: the machine must come to an end, and after
// a deletion the object must be gone, with nothing left that is not kept.
func (p *play) calm() {
	for _, name := range slices.Sorted(maps.Keys(p.w.Machine.Bindings().Guards)) {
		p.w.GiveGuard(name)
	}
	p.pending, p.outage, p.w.ConflictNext, p.w.Machine = map[string][]simulate.Answer{}, time.Time{}, false, p.machines[len(p.machines)-1]
	p.restore()
	for _, ends := range []func() bool{p.ended, p.w.Over} {
		if p.over() {
			break
		}
		until := func() bool { return p.between() || ends() }
		p.w.Wake()
		if err := p.w.Run(enough, until); err != nil {
			p.fail("%s, in phase %s", err, p.w.Stored.Phase)
		}
		if !ends() {
			p.fail("no end within %s: phase %s, %q, held %v", enough, p.w.Stored.Phase, p.w.Shown.Message, p.w.Stored.HeldNames())
		}
		p.w.Delete()
	}
	if left := p.truth.left(); p.w.Over() && len(left) > 0 {
		p.fail("the object is gone, and %v is in place", left)
	}
}

func (p *play) ended() bool {
	return p.w.Over() || slices.Contains([]string{"Complete", "Failed", "Rejected"}, p.w.Stored.Phase) && !p.w.Deleting()
}

// between is called before and after each look: what is stored is checked, and what
// happens to the object happens.
func (p *play) between() bool {
	p.event++
	p.check()
	if p.backup--; p.backup == 0 {
		p.restore()
	}
	for !p.over() {
		f, ok := p.next(deletes, asks, wakes, passes, steps, edits, closes, blinds, vanishes, prunes, loses)
		if !ok {
			break
		}
		p.happen(f)
	}
	return p.over()
}

func (p *play) happen(f fault) {
	w := p.w
	switch f.Do {
	case deletes:
		w.Delete()
	case vanishes, prunes, loses:
		p.interfere(f)
	case asks:
		p.asked++
		w.Annotate(map[string]string{"phasegate.dev/retry": fmt.Sprint(p.asked)})
	case wakes:
		w.Wake()
	case passes:
		w.Tick([]time.Duration{time.Second, time.Minute, 40 * time.Minute, 5 * time.Hour, 25 * time.Hour, 200 * time.Hour}[f.Pick%6])
	case steps:
		w.Step([]time.Duration{time.Hour, -time.Hour}[f.Pick%2])
	case edits:
		w.Machine = p.machines[f.Pick%len(p.machines)]
		w.Wake()
	case closes, blinds:
		guards := slices.Sorted(maps.Keys(w.Machine.Bindings().Guards))
		answer := simulate.GuardAnswer{Seen: "closed", Times: 1 + f.Pick%5}
		if f.Do == blinds {
			answer.Err = errors.New("the API server does not answer")
		}
		w.GiveGuard(guards[f.Pick%len(guards)], answer)
	}
}

// interfere is a person who breaks what belongs to the machine.
func (p *play) interfere(f fault) {
	switch w := p.w; {
	case w.Gone() || p.lost != nil: // a state that is lost with its object is lost for good
	case f.Do == vanishes:
		w.Vanish()
	case f.Do == prunes:
		w.LoseView()
	case slices.Contains(w.Finalizers, w.Machine.Finalizer()):
		lost := w.LoseState()
		p.lost, p.backup = &lost, 1+f.Pick%5
	}
}

// restore is the way out that the message of a lost state names.
func (p *play) restore() {
	if p.lost == nil {
		return
	}
	p.w.Stored, p.lost = *p.lost, nil
	p.w.Wake()
}

// interrupt is asked before and after each command.
func (p *play) interrupt(cmd fsm.Decision, done bool) bool {
	p.event++
	if !done && cmd.Do != fsm.RunAction {
		if _, ok := p.next(conflicts); ok {
			p.w.ConflictNext = true
		}
		if p.planted == deedFirst && cmd.Do == fsm.Commit && cmd.Transition == nil {
			p.tooEarly()
		}
	}
	if done {
		p.check()
	}
	_, killed := p.next(crashes)
	return killed
}

// tooEarly does what the step that comes will do, before it is on record.
func (p *play) tooEarly() {
	for _, e := range p.w.Machine.Definition().Spec.Effects {
		if p.w.Stored.Phase == "Migrating" && !p.w.Stored.IsHeld(e.Name) {
			p.truth.act(e.Acquire, fsm.Decision{}, &p.w.Stored, true)
			return
		}
	}
}

// respond is an action: its deed, and what it says.
func (p *play) respond(action string, cmd fsm.Decision) (simulate.Answer, bool) {
	if waiting := p.pending[action]; len(waiting) > 0 {
		p.pending[action] = waiting[1:]
		return p.did(action, cmd, waiting[0], waiting[0].Err == nil), true
	}
	kinds := []kind{fails, outage, gives, waits, lies, drags}
	if len(p.w.Machine.Bindings().Actions[cmd.Action].Outputs) > 0 {
		kinds = append(kinds, finds)
	}
	f, ok := p.next(kinds...)
	refused := simulate.Answer{Result: fsm.Result{Err: errors.New("refused"), Class: classes[f.Pick%len(classes)]}}
	switch {
	case p.w.Now().Before(p.outage):
		return p.did(action, cmd, refused, false), true
	case !ok:
		return p.did(action, cmd, simulate.Answer{}, true), true
	}
	switch f.Do {
	case outage:
		p.outage = p.w.Now().Add(40 * time.Minute)
		return p.did(action, cmd, refused, false), true
	case gives:
		return p.did(action, cmd, simulate.Answer{Result: fsm.Result{Err: fsm.Terminal("Bad", "for good"), Class: fsm.ClassTerminal}}, f.Pick%2 == 0), true
	case waits:
		return p.did(action, cmd, simulate.Answer{Result: fsm.Result{Err: fsm.Wait("not yet")}}, f.Pick%2 == 0), true
	case lies:
		return p.did(action, cmd, refused, true), true
	case finds:
		found := simulate.Answer{Result: fsm.Result{Outputs: something(p.w.Machine.Bindings().Actions[cmd.Action])}}
		p.pending[action] = slices.Repeat([]simulate.Answer{found}, f.Pick%7)
		return p.did(action, cmd, found, true), true
	case drags:
		return p.did(action, cmd, simulate.Answer{Takes: 10 * time.Minute}, true), true
	}
	return p.did(action, cmd, refused, f.Pick%2 == 0), true
}

var classes = []fsm.Class{fsm.ClassConflict, fsm.ClassForbidden, fsm.ClassNotFound, fsm.ClassInvalid, fsm.ClassTimeout, fsm.ClassThrottled, fsm.ClassUnavailable}

func (p *play) did(action string, cmd fsm.Decision, said simulate.Answer, done bool) simulate.Answer {
	if p.lost != nil {
		p.fail("%s is called, and nobody knows where the object stands", action)
	}
	p.allowed(action, cmd)
	if wrong := p.truth.act(action, cmd, &p.w.Stored, done); wrong != "" {
		p.fail("%s", wrong)
	}
	if action == "LockV1" && said.Err == nil && p.w.Own["lock"] == nil {
		p.w.Own = map[string]any{"lock": map[string]any{"deadline": p.w.Now().Add(30 * time.Minute).Format(time.RFC3339)}}
	}
	return said
}

// allowed: the phase of a step reached the API server before the step.
func (p *play) allowed(action string, cmd fsm.Decision) {
	for _, ph := range p.w.Machine.Definition().Spec.Phases {
		here := func(s v1alpha1.Step) bool { return s.Action == action || s.Undo != "" && cmd.Effect != "" }
		if ph.Name == p.w.Stored.Phase && !slices.ContainsFunc(ph.Steps, here) {
			p.fail("%s is called in phase %s, which has no such step", action, ph.Name)
		}
	}
}

// something is what an action answers on a day on which there is something to tell.
func something(spec fsm.ActionSpec) map[string]any {
	out := simulate.Zero(spec)
	for name, t := range spec.Outputs {
		switch t {
		case fsm.TypeInt:
			out[name] = int64(2)
		case fsm.TypeStrings:
			out[name] = []any{"one", "two"}
		case fsm.TypeBool:
			out[name] = true
		}
	}
	return out
}

// check looks at what is stored.
func (p *play) check() {
	for _, d := range p.w.Defects {
		p.fail("%s", d)
	}
	st := &p.w.Stored
	if p.lost != nil {
		if p.w.Gone() || st.Phase != "" {
			p.fail("the state is lost, and the object is gone (%t) or in phase %q", p.w.Gone(), st.Phase)
		}
		return
	}
	if st.Phase != p.phase || len(st.History) != p.transitions {
		p.transition(st)
	}
	if wrong := p.truth.ledger(st.HeldNames()); wrong != "" {
		p.fail("%s", wrong)
	}
	if !st.IsHeld("v1Lock") {
		p.w.Own = nil
	}
	p.expired(&p.w.ShownMachine)
	p.conditions(p.w.ShownMachine.Phase)
}

// transition follows the history: along the edges of the file, one at a time.
func (p *play) transition(st *v1alpha1.MachineStatus) {
	last := st.History[len(st.History)-1]
	if last.From != p.phase || last.To != st.Phase {
		p.fail("phase %s became %s, the history says %s → %s", p.phase, st.Phase, last.From, last.To)
	}
	edge := func(e program.Edge) bool { return e.From == last.From && e.To == last.To }
	if last.From != "" && !slices.ContainsFunc(p.w.Machine.Edges(), edge) {
		p.fail("%s → %s is no edge of the file", last.From, last.To)
	}
	p.phase, p.transitions, p.slept = st.Phase, len(st.History), time.Time{}
	p.truth.enter(st.Phase)
}

// conditions tell the phase, as far as it is an end.
func (p *play) conditions(phase string) {
	raised := func(name string) bool { return meta.IsStatusConditionTrue(p.w.Shown.Conditions, name) }
	failed := phase == "Failed" || phase == "Rejected"
	if phase == "" || raised("Ready") == (phase == "Complete") && (!failed || raised("Stalled")) {
		return
	}
	var all []string
	for _, c := range p.w.Shown.Conditions {
		all = append(all, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	p.fail("conditions of phase %s are %s", phase, strings.Join(all, ", "))
}
