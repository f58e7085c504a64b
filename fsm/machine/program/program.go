package program

import (
	"cmp"
	"slices"
	"time"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Program is a machine file with every expression compiled and every duration
// parsed. Nobody changes one that was compiled.
//
// A part of it has what the file says as an embedded value, and beside it what was made of that: WhenExpr of when,
// Text of message, TimeoutAfter of timeout.after.
type Program struct {
	Phases    map[string]*Phase
	Order     []*Phase
	Variables map[string]*expr.Expr
	State     map[string]StateValue
	// Status are the fields that the object shows besides those of the program, in the order of their names.
	Status   []ShownField
	Requests map[string]*Request
	actions  map[string]*Action
	Effects  map[string]Effect
	// Events are all that events can come from, by the name of the phase.
	Events map[string]*PhaseEvents
	Self   *expr.Schema
	// Guards of the program that the file asks.
	Guards []string
	// StepsRead are the steps whose outputs an expression reads by their name.
	StepsRead map[string]bool
	// Texts are those of all expressions.
	Texts []string
	// InText are those that stand in a text with more than them.
	InText map[string]bool
	// Invariants are proved, never asked by a run.
	Invariants []Invariant
	Recover    []Recovery
}

// Phase is a phase, with the defaults of the file filled in.
type Phase struct {
	*v1alpha1.Phase
	// Path is where it stands in the file.
	Path         string
	Requirements []Requirement
	StepList     []Step
	Exits        []Exit
	Catches      []Catch
	TimeoutAfter time.Duration
	PollEvery    time.Duration
	Backoff      Backoff
	Text         *expr.Template
	ways         []Edge
	Revision     string // a hash of what the steps do
	// Converts are the outputs that JSON does not bring back in their type.
	Converts map[string]expr.Type
	// External: a step of it may call something outside the cluster.
	External bool
	// TimeoutExpr is what timeout.after comes to; TimeoutAfter is the longest then. Nil: it is that.
	TimeoutExpr *expr.Expr
	// TimeoutAssigns are made where the timeout leads on.
	TimeoutAssigns []Assignment
}

// Requirement is asked before the first step of a phase.
type Requirement struct {
	v1alpha1.Require
	WhenExpr *expr.Expr
	Text     *expr.Template
}

// Effect is something that must be released, with the actions that take it and release it.
type Effect struct {
	v1alpha1.Effect
	BoundAcquire, BoundRelease *Action
	// Keyed: it is taken for each item of a forEach.
	Keyed bool
}

// ReleasedBy is the name of the release: the file's, else the program's name of the inverse.
func (e Effect) ReleasedBy() string { return cmp.Or(e.Release, e.BoundRelease.Use) }

// EffectNames are the effects of a machine, in the order of its file.
type EffectNames []string

// EffectSet has one bit for each effect of a machine, in that order.
type EffectSet uint64

// Set has those of the names that are effects.
func (all EffectNames) Set(names ...string) (set EffectSet) {
	for _, name := range names {
		if i := slices.Index(all, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// In lists the effects of a set.
func (all EffectNames) In(set EffectSet) []string {
	names := []string{}
	for i, name := range all {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Step is a step. Label is what a status calls it; Acquires and Releases are the effects that its action takes and
// releases.
type Step struct {
	v1alpha1.Step
	Bound              *Action
	Label              string
	IfExpr, UntilExpr  *expr.Expr
	WaitFor, PollEvery time.Duration
	Backoff            Backoff
	Text               *expr.Template
	Acquires, Path     string
	Releases           string
	// Loop is nil where the step has no forEach.
	Loop *Loop
	// KeysExpr says for which keys an effect is released; nil: all.
	KeysExpr *expr.Expr
	// ID is the same for every call of the step, and for no other step.
	ID string
	// TimeLimit is how long it may take; 0: for ever.
	TimeLimit time.Duration
	// WaitExpr and LimitExpr are what wait and timeout come to; WaitFor and TimeLimit are the longest then. Nil: they are that.
	WaitExpr, LimitExpr *expr.Expr
	FailWhenExpr        *expr.Expr
}

// Loop is a forEach.
type Loop struct {
	In, Key *expr.Expr
	// ParallelExpr says how many items may be under way; nil: Parallel.
	ParallelExpr *expr.Expr
	Parallel     int
	// Tolerated is how many may fail for good.
	Tolerated int32
	// Any and Several are whether there is an item, and more than one: that is what a proof knows of the list.
	Any, Several *expr.Expr
}

// Recovery says where an object goes on whose state is lost.
type Recovery struct {
	v1alpha1.Recovery
	WhenExpr *expr.Expr
}

// Exit leads out of a phase while its guard is true; without one always.
type Exit struct {
	v1alpha1.Exit
	WhenExpr *expr.Expr
	Text     *expr.Template
	Assigns  []Assignment
}

// Catch leads out of a phase after an error.
type Catch struct {
	v1alpha1.OnError
	Assigns []Assignment
}

// StateValue is a value that outlives a phase.
type StateValue struct {
	Type expr.Type
	// Initial is nil where there is none.
	Initial any
}

// ShownField is a field of the status that the file defines.
type ShownField struct {
	Name string
	Expr *expr.Expr
}

// Assignment is what a transition assigns to a state value: what the Text comes to. Path is where that stands in the file.
type Assignment struct {
	Name, Text, Path string
	Expr             *expr.Expr
}

// Backoff is how a step is tried again. Attempts is 0 where that never ends; an error of the classes NonRetryable ends it at once.
// To is where it leads then, if anywhere.
type Backoff struct {
	Base, Max      time.Duration
	Factor, Jitter float64
	Attempts       int32
	To             string
	NonRetryable   []Class
}

// Request is a one-shot request.
type Request struct {
	v1alpha1.Request
	TokenExpr, ValidExpr *expr.Expr
	// Recorded is the token that the object says was acted on last; nil: it does not say.
	Recorded   *expr.Expr
	ParamExprs map[string]*expr.Expr
}

// EdgeKind is what opens an edge.
type EdgeKind string

// The kinds of edges.
const (
	EdgeRequire EdgeKind = "require"
	EdgeNext    EdgeKind = "next"
	EdgeTimeout EdgeKind = "timeout"
	EdgeRetry   EdgeKind = "retry"
	EdgeError   EdgeKind = "onError"
	EdgeDelete  EdgeKind = "onDelete"
	EdgeUpgrade EdgeKind = "upgrade"
)

// Edge is one way from a phase to another, whatever opens it.
type Edge struct {
	// Event is the one that looplab/fsm knows it by, and the reason of its transitions. It is unique in its phase.
	Event    string
	From, To string
	Kind     EdgeKind
	// Path is where the target stands in the file. It is unique in its machine.
	Path string
	// Guard is what must hold: an expression, the time of a timeout, the number of
	// attempts, the class of an error; empty when nothing must.
	Guard string
	// Reason is the one that the file gives; empty when it gives none.
	Reason string
	// Sets is what it assigns.
	Sets []Assignment
}

// PhaseEvents is all that can happen in one phase. Its events are what looplab/fsm is made of for a pass that comes to one;
// they are made once, and never changed.
type PhaseEvents struct {
	Name   string
	Events []looplab.EventDesc
	// Means is what each of them is.
	Means map[string]Meaning
}

// Meaning is what an event of a source is.
type Meaning struct {
	// Guards are those that may open it, nil for none: of several exits where a file gives them no reasons.
	Guards []*expr.Expr
	// unnamed: the file gives it no reason. It may stand for all ways to one phase that have none.
	unnamed bool
	// Renames: the visit goes on under another name.
	Renames bool
}

// Invariant is a compiled spec.invariants entry.
type Invariant struct {
	Name, Path, Text string
	expr             *expr.Invariant
	// Effects that it names.
	Effects []string
}
