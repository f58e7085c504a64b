// Package describe tells in words what a phase of a machine does, what leaves it,
// what a deletion does there, what is held, how long it may last and how a
// person gets an object out of it.
//
// It reads the machine file and what the program says of its actions; it knows
// no cluster and runs nothing.
package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Phase is the story of one phase. All texts are whole sentences or parts of
// them for people; the rest is as it stands in the file.
type Phase struct {
	Machine     string   `json:"machine"`
	Revision    string   `json:"revision"`
	Phase       string   `json:"phase"`
	Traits      []string `json:"traits,omitempty"`
	Description string   `json:"description,omitempty"`

	Steps []Step `json:"steps,omitempty"`
	// AfterError is what an error leads to where a step says nothing else.
	AfterError string   `json:"afterError,omitempty"`
	Exits      []Exit   `json:"exits,omitempty"`
	Deletion   Deletion `json:"deletion"`
	Held       Held     `json:"held"`
	Worst      Worst    `json:"worst"`
	// Waiting is what happens while every exit is closed.
	Waiting  []string  `json:"waiting,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Live is set where the story is that of an object.
	Live *Live `json:"live,omitempty"`
}

// Step is one thing that the phase does.
type Step struct {
	Name string `json:"name"`
	// Does is the program's own sentence on the action.
	Does string `json:"does,omitempty"`
	// Notes are conditions, polls, effects and messages.
	Notes []string `json:"notes,omitempty"`
}

// Exit is a way out of the phase.
type Exit struct {
	To     string           `json:"to"`
	Kind   program.EdgeKind `json:"kind"`
	Guard  string           `json:"guard,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Words  string           `json:"words"`
}

// Deletion is what a deletion does from here to the end.
type Deletion struct {
	Words string `json:"words"`
	Path  []Hop  `json:"path,omitempty"`
}

// Hop is a phase on the way of a deletion.
type Hop struct {
	Phase string   `json:"phase"`
	Does  []string `json:"does,omitempty"`
}

// Request is a one-shot request that matters in the phase.
type Request struct {
	Name     string   `json:"name"`
	Leads    []string `json:"leads,omitempty"`
	Commands []string `json:"commands,omitempty"`
}

// Live is where an object is.
type Live struct {
	Object string                 `json:"object"`
	Status v1alpha1.MachineStatus `json:"status"`
}

// Describer tells the stories of one machine.
type Describer struct {
	m *fsm.Machine
	// known has a sentence for each action and guard.
	known    program.Bindings
	prog     *program.Program
	effects  holds
	requests []fsm.Request
}

// New makes a Describer, which is safe for concurrent use.
func New(m *fsm.Machine) *Describer {
	t := &Describer{m: m, known: m.Bindings(), prog: m.Program(), requests: m.Requests()}
	t.effects = t.flow()
	return t
}

// Phase tells of one phase. The error says that the machine does not have it.
func (t *Describer) Phase(name string) (*Phase, error) {
	p := t.prog.Phases[name]
	if p == nil {
		return nil, fmt.Errorf("machine %s has no phase %q; it has: %s", t.m.Name(), name, strings.Join(t.m.Phases(), ", "))
	}
	pace, paces := t.m.Pace(name)
	s := &Phase{
		Machine: t.m.Name(), Revision: t.m.Revision(), Phase: name, Traits: t.m.Traits(p.Phase), Description: p.Description,
		Deletion: t.deletion(p), Held: Held{Entry: t.effects.entry[name], Here: t.effects.here[name], Keeps: p.Keeps}, Worst: t.worst(name), Requests: t.asks(p),
	}
	for i := range p.StepList {
		s.Steps = append(s.Steps, t.step(p, &p.StepList[i], pace, paces[i]))
	}
	if len(p.Steps) > 0 {
		s.AfterError = afterError(p, pace.Poll, pace)
	}
	for _, e := range p.Edges() {
		if e.Kind != program.EdgeDelete {
			s.Exits = append(s.Exits, Exit{To: e.To, Kind: e.Kind, Guard: e.Guard, Reason: e.Reason, Words: t.opens(e)})
		}
	}
	s.Waiting = waiting(p, pace)
	return s, nil
}

// opens are the words of an edge, with the program's sentence on each Go guard.
func (t *Describer) opens(e program.Edge) string {
	words := e.Words()
	for _, name := range slices.Sorted(maps.Keys(t.known.Guards)) {
		if reads(e.Guard, "guards."+name) {
			words += "; guards." + name + ": " + t.known.Guards[name]
		}
	}
	return words
}

// looksAgain tells whether the steps of a phase are repeated while its exits are
// closed, and how often; 0 where only a change leads to that.
func looksAgain(p *program.Phase, pace fsm.Pace) (bool, time.Duration) {
	again := p.Kind == v1alpha1.PhaseSteady || len(p.Next) > 0 && p.Next[len(p.Next)-1].When != ""
	if !again || p.Terminal != "" && p.Poll == "" {
		return again, 0
	}
	return again, pace.Poll
}

func waiting(p *program.Phase, pace fsm.Pace) []string {
	var all []string
	switch again, poll := looksAgain(p, pace); {
	case again && poll > 0:
		all = append(all, fmt.Sprintf("all steps run again every %s", short(poll)))
	case again:
		all = append(all, "the object is looked at when it or something watched changes")
	}
	if p.Message != "" {
		all = append(all, "the message is: "+p.Message)
	}
	if t := p.Timeout; t != nil && t.Stalled != "" {
		all = append(all, fmt.Sprintf("after %s the object is Stalled (%s), and stays", t.After, t.Stalled))
	}
	return all
}

// asks lists the requests that the phase waits for, and how to make them.
func (t *Describer) asks(p *program.Phase) []Request {
	var all []Request
	for _, q := range t.requests {
		if !slices.Contains(q.Phases, p.Name) {
			continue
		}
		r := Request{Name: q.Name, Commands: t.commands(q)}
		for _, s := range p.StepList {
			if reads(s.Until, "request."+q.Name) {
				r.Leads = append(r.Leads, "on from step "+s.Label)
			}
		}
		for _, x := range p.Next {
			if reads(x.When, "request."+q.Name) {
				r.Leads = append(r.Leads, "to "+x.To)
			}
		}
		all = append(all, r)
	}
	return all
}

func (t *Describer) commands(q fsm.Request) []string {
	if q.Annotation == "" {
		return nil
	}
	kind := strings.ToLower(t.m.For().Kind)
	ask := fmt.Sprintf("kubectl phasegate approve %s/NAME --request %s", kind, q.Name)
	if q.Name == "approve" || q.Name == "retry" {
		ask = fmt.Sprintf("kubectl phasegate %s %s/NAME", q.Name, kind)
	}
	annotate := fmt.Sprintf("kubectl annotate %s NAME %s=\"$(date -Is)\" --overwrite", kind, q.Annotation)
	for _, name := range slices.Sorted(maps.Keys(q.Params)) {
		ask += fmt.Sprintf(" [--param %s=VALUE]", name)
		annotate += fmt.Sprintf(" [%s=VALUE]", q.Params[name])
	}
	return []string{ask, annotate}
}
