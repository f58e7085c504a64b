package v1alpha1

// Machine is a machine file: the phases of one kind of object, the steps of
// each phase, the guards of each transition. Field by field: docs/machine-format.md.
type Machine struct {
	// APIVersion is phasegate.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is Machine.
	Kind string `json:"kind"`
	// Metadata names the machine; objects remember the name.
	Metadata FileMeta `json:"metadata"`
	// Spec is the whole machine.
	Spec MachineSpec `json:"spec"`
}

// FileMeta names a file object.
type FileMeta struct {
	// Name is unique among the files of its kind.
	Name string `json:"name"`
	// Labels are for people and tools; the program does not read them.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are for people and tools; the program does not read them.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MachineSpec is the whole machine.
type MachineSpec struct {
	// For is the kind whose objects the machine drives.
	For ObjectKind `json:"for"`
	// Initial is the phase of a new object.
	Initial string `json:"initial"`
	// Finalizer is added after `require` passed and before the first effect, and
	// removed only in an end phase.
	Finalizer string `json:"finalizer,omitempty"`
	// Defaults are fall-backs for phases that say nothing.
	Defaults Defaults `json:"defaults,omitempty"`
	// Watch lists other objects whose changes wake the owner.
	Watch []Watch `json:"watch,omitempty"`
	// State are values that outlive a phase, by name: exits assign them.
	State map[string]StateValue `json:"state,omitempty"`
	// Status are fields of the object's status, by name: CEL expressions that are evaluated at each write of the view.
	// Nothing reads them.
	Status map[string]string `json:"status,omitempty"`
	// Variables are named expressions for use in guards.
	Variables []Named `json:"variables,omitempty"`
	// Actions are actions of the program under a name and with parameters of the
	// machine's own, for steps and effects.
	Actions []NamedAction `json:"actions,omitempty"`
	// Effects are things that must never leak.
	Effects []Effect `json:"effects,omitempty"`
	// Requests are one-shot commands by a person or a tool.
	Requests []Request `json:"requests,omitempty"`
	// StepLists are lists of steps by name, which phases use: `- use: NAME` stands for the steps of the list.
	StepLists map[string][]Step `json:"stepLists,omitempty"`
	// Failure is undo: phase RollingBack releases what is held and leads to Failed. A phase of such a name in the file takes the
	// place of the one that is added.
	Failure string `json:"failure,omitempty"`
	// Deletion is undo: phase Aborting releases what is held and leads to Deleted, and a phase without onDelete leads to
	// Aborting. A phase of such a name in the file takes the place of the one that is added.
	Deletion string `json:"deletion,omitempty"`
	// Phases, the first of which need not be the initial one.
	Phases []Phase `json:"phases"`
	// Invariants are proved over every reachable state by `lint --prove`.
	Invariants []Named `json:"invariants,omitempty"`
	// Upgrade says how objects of an older revision are adopted.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Recover says where an object goes on whose state is lost; the first entry that
	// applies. Where none does it stands Stalled. A machine without effects needs none:
	// it begins anew.
	Recover []Recovery `json:"recover,omitempty"`
}

// ObjectKind names an API kind.
type ObjectKind struct {
	// APIVersion is a group and version such as apps/v1; of the core group v1.
	APIVersion string `json:"apiVersion"`
	// Kind is the singular in CamelCase, such as Deployment.
	Kind string `json:"kind"`
}

// Defaults of phases.
type Defaults struct {
	// Poll is how soon a look that found every exit closed is repeated: a Go duration such as 60s.
	Poll string `json:"poll,omitempty"`
	// Retry is the backoff after an error.
	Retry *Retry `json:"retry,omitempty"`
}

// Watch is an object, or all owned objects of a kind, whose changes wake the owner.
type Watch struct {
	// APIVersion of the other objects.
	APIVersion string `json:"apiVersion"`
	// Kind of the other objects.
	Kind string `json:"kind"`
	// Name of the one object to watch.
	Name string `json:"name,omitempty"`
	// Owned is true to watch those that have the driven object as an owner.
	Owned bool `json:"owned,omitempty"`
}

// StateValue is a value that outlives a phase. Exits assign it, in the write of the transition, so that it is assigned once,
// whatever crashes.
type StateValue struct {
	// Type is string, int, number, bool, duration, []string, object or any.
	Type string `json:"type"`
	// Initial is the value before the first assignment. Without it there is none, and reading it is an error.
	Initial any `json:"initial,omitempty"`
}

// Named is a named CEL expression.
type Named struct {
	// Name of the expression: letters, digits and _, a letter first.
	Name string `json:"name"`
	// Expr is the CEL expression.
	Expr string `json:"expr"`
}

// NamedAction is an action of the program with parameters.
type NamedAction struct {
	// Name for steps and effects of this machine.
	Name string `json:"name"`
	// Use is the name of the program's action.
	Use string `json:"use"`
	// With are the parameters of the action. A text may hold ${CEL}, but not read result.
	With map[string]any `json:"with,omitempty"`
}

// Effect is a thing that must never leak, with the action that takes it and
// the action that releases it.
type Effect struct {
	// Name is what status.machine.held shows while it is taken.
	Name string `json:"name"`
	// Acquire is the action that takes it.
	Acquire string `json:"acquire"`
	// Release is the action that releases it; it must do nothing when nothing was taken. Without it, the inverse of Acquire
	// releases it, where that has one: Delete after Apply, for example.
	Release string `json:"release,omitempty"`
	// Role says what it is to the program, which knows no names of this file. `actions` lists
	// the roles that a program has.
	Role string `json:"role,omitempty"`
	// ShowAs is what status.phase shows while the effect is held, whatever the phase is: for
	// other programs that act by it. Of several effects the one that was taken last decides.
	// The message begins with the name of the phase then.
	ShowAs string `json:"showAs,omitempty"`
}

// Request is a one-shot command: it is pending while its token is not empty
// and differs from the one acted on last.
type Request struct {
	// Name is read as request.NAME.pending in expressions.
	Name string `json:"name"`
	// Token is a CEL text: another value is another request.
	Token string `json:"token"`
	// Valid is a CEL condition on the token; false makes it no request.
	Valid string `json:"valid,omitempty"`
	// Params are CEL expressions, read as request.NAME.params.KEY.
	Params map[string]string `json:"params,omitempty"`
	// Record is where the last token acted on is shown.
	Record *Record `json:"record,omitempty"`
}

// Record names an annotation that shows the last token acted on.
type Record struct {
	// Annotation of the object.
	Annotation string `json:"annotation"`
}

// PhaseKind is what an object does in a phase; empty is progressing.
type PhaseKind string

// The kinds of phases.
const (
	PhaseProgressing PhaseKind = "progressing"
	PhaseWaiting     PhaseKind = "waiting"
	PhaseSteady      PhaseKind = "steady"
)

// PhaseEnd is how a machine ends in a terminal phase; empty in any other.
type PhaseEnd string

// The ends of machines.
const (
	PhaseSuccess PhaseEnd = "success"
	PhaseFailure PhaseEnd = "failure"
)

// Phase is one state of the machine.
type Phase struct {
	// Name is unique in the machine.
	Name string `json:"name"`
	// Description is shown as the message where there is no other.
	Description string `json:"description,omitempty"`
	// ShowAs is what status.phase shows instead of the name.
	ShowAs string `json:"showAs,omitempty"`
	// Kind is progressing (the default), waiting (on a person: an error never backs
	// off) or steady (the object is Ready while no step fails or waits).
	Kind PhaseKind `json:"kind,omitempty"`
	// Terminal is success or failure. Such a phase is left by a request only.
	Terminal PhaseEnd `json:"terminal,omitempty"`
	// Deletion says that the phase is part of what a deletion does.
	Deletion bool `json:"deletion,omitempty"`
	// End says that the finalizer is removed here.
	End bool `json:"end,omitempty"`
	// Role says what the phase is to the program, which knows no names of this file. `actions`
	// lists the roles that a program has.
	Role string `json:"role,omitempty"`

	// Require are preconditions, asked before the finalizer is added and anything is taken.
	Require []Require `json:"require,omitempty"`
	// Steps are done in order; which one is current is stored.
	Steps []Step `json:"steps,omitempty"`
	// Next are the exits: once all steps are done, the first that is open is taken.
	Next []Exit `json:"next,omitempty"`
	// Timeout is a deadline counted from the entry into the phase.
	Timeout *Timeout `json:"timeout,omitempty"`
	// Retry is the backoff after an error, instead of spec.defaults.retry.
	Retry *Retry `json:"retry,omitempty"`
	// OnError says where a class of error leads; the first that fits.
	OnError []OnError `json:"onError,omitempty"`
	// Poll is how soon a look that found every exit closed is repeated: a Go duration such as 10s.
	Poll string `json:"poll,omitempty"`
	// Watch lists other objects whose changes wake the owner in this phase.
	Watch []Watch `json:"watch,omitempty"`
	// Message is a template with ${CEL}, shown while every exit is closed.
	Message string `json:"message,omitempty"`

	// OnDelete is what a deletion does here; required unless deletion is true, or that of the machine is undo.
	OnDelete *OnDelete `json:"onDelete,omitempty"`
	// Keeps names effects that stay in place for good from the entry into this
	// phase on: they leave the ledger, and nobody releases them.
	Keeps []string `json:"keeps,omitempty"`
	// PointOfNoReturn says that no way leads from here to an undo.
	PointOfNoReturn bool `json:"pointOfNoReturn,omitempty"`
}

// Require is a precondition of the first visit, checked before the finalizer.
type Require struct {
	// When is a CEL condition.
	When string `json:"when"`
	// Else is the phase that it leads to when it does not hold.
	Else string `json:"else"`
	// Reason of that transition, one CamelCase word.
	Reason string `json:"reason,omitempty"`
	// Message is a template shown when the precondition does not hold.
	Message string `json:"message,omitempty"`
}

// Step is one thing to do: an action, `undo: held`, or `wait: 10s`. Or it stands for the steps of a list.
type Step struct {
	// Use is the name of a list of spec.stepLists, whose steps stand here.
	Use string `json:"use,omitempty"`
	// Action is the name of an action of the program or of spec.actions.
	Action string `json:"action,omitempty"`
	// Undo is held: all effects are released, newest first. Or it is an effect that is taken for each item of a forEach: it is
	// released for each, newest first, or for the items of Keys.
	Undo string `json:"undo,omitempty"`
	// Keys is a CEL list of the keys for which Undo releases; without it all.
	Keys string `json:"keys,omitempty"`
	// Wait is a Go duration, counted from the moment the step became the current one, or ${CEL} that comes to one.
	Wait string `json:"wait,omitempty"`

	// Name of the step where the action's is not telling or not unique.
	Name string `json:"name,omitempty"`
	// With are the parameters of the action, laid over those of a named action.
	// A text may hold ${CEL}; a text that is one ${CEL} keeps its type.
	With map[string]any `json:"with,omitempty"`
	// ForEach calls the action once for each item of a list.
	ForEach *ForEach `json:"forEach,omitempty"`
	// If is a CEL condition; the step is left out when it is false.
	If string `json:"if,omitempty"`
	// FailWhen is a CEL condition on what the action has answered: true is a terminal error. It is asked before Until.
	FailWhen string `json:"failWhen,omitempty"`
	// Until must become true before the next step; checked every Poll.
	Until string `json:"until,omitempty"`
	// Consecutive is how often in a row Until must be true, a Poll apart: 2 to 100; else once.
	Consecutive int32 `json:"consecutive,omitempty"`
	// Timeout is how long after it became the current one the step must be done, else it fails with a terminal error: a Go duration,
	// or ${CEL} that comes to one.
	Timeout string `json:"timeout,omitempty"`
	// Max bounds what the ${CEL} of Wait or Timeout comes to: a Go duration.
	Max string `json:"max,omitempty"`
	// Poll is how soon the step is repeated while it waits: a Go duration.
	Poll string `json:"poll,omitempty"`
	// Retry is the backoff after an error, instead of the phase's.
	Retry *Retry `json:"retry,omitempty"`
	// Message is a template with ${CEL}, shown while the step waits.
	Message string `json:"message,omitempty"`
}

// ForEach is a loop over a list. With and Until of its step may read item and key.
type ForEach struct {
	// In is a CEL list. It is evaluated once, when the step begins: a list that changes meanwhile changes nothing.
	In string `json:"in"`
	// Key is a CEL text that tells one item from all others, for example item.name; without it the item is its own key.
	Key string `json:"key,omitempty"`
	// Parallel is how many items may be under way at a time: a number, or CEL; else 1.
	Parallel any `json:"parallel,omitempty"`
	// ToleratedFailures is how many items may fail for good while the others go on; one more fails the step. At most 100.
	ToleratedFailures int32 `json:"toleratedFailures,omitempty"`
}

// Exit is a way to another phase; the first whose When is true is taken.
type Exit struct {
	// To is the phase that it leads to.
	To string `json:"to"`
	// When is a CEL condition; without it the exit is always open. Only the last may lack it.
	When string `json:"when,omitempty"`
	// Set are CEL expressions, by the name of the state value that each is assigned to. All of them read the values of before.
	Set map[string]string `json:"set,omitempty"`
	// Reason of the transition, one CamelCase word; else the name of the target.
	Reason string `json:"reason,omitempty"`
	// Message is a template that tells of the transition.
	Message string `json:"message,omitempty"`
}

// Timeout is a deadline counted from the entry into the phase. It has exactly one
// of To and Stalled.
type Timeout struct {
	// After is a Go duration such as 2h, or ${CEL} that comes to one.
	After string `json:"after"`
	// Max bounds what the ${CEL} of After comes to: a Go duration.
	Max string `json:"max,omitempty"`
	// To is the phase that it leads to.
	To string `json:"to,omitempty"`
	// Stalled is a reason: raise the condition and stay.
	Stalled string `json:"stalled,omitempty"`
	// Reason of the transition, one CamelCase word.
	Reason string `json:"reason,omitempty"`
	// Set is as in an exit, and reads error.reason and error.message; needs To. One that cannot be evaluated leaves its value.
	Set map[string]string `json:"set,omitempty"`
}

// Retry is a backoff. Attempts 0 means: never give up.
type Retry struct {
	// Base is the first pause: a Go duration such as 1s.
	Base string `json:"base,omitempty"`
	// Factor by which each pause is longer than the one before; at least 1.
	Factor float64 `json:"factor,omitempty"`
	// Max is the longest pause: a Go duration such as 5m.
	Max string `json:"max,omitempty"`
	// Jitter is the part of a pause that is left to chance, from 0 to 1.
	Jitter *float64 `json:"jitter,omitempty"`
	// Attempts is how many errors in a row end the retries; 0 means never.
	Attempts int32 `json:"attempts,omitempty"`
	// To is the phase that they lead to then; it needs attempts or nonRetryable.
	To string `json:"to,omitempty"`
	// NonRetryable are the classes of errors of which the first is the last attempt.
	NonRetryable []string `json:"nonRetryable,omitempty"`
}

// OnError is where a class of error leads once it is not retried any more.
type OnError struct {
	// Is the class: Terminal, Conflict, Forbidden, NotFound, Invalid, Timeout, Throttled, Unavailable, or * for any.
	Is string `json:"is"`
	// To is the phase that it leads to.
	To string `json:"to"`
	// Reason of the transition, one CamelCase word.
	Reason string `json:"reason,omitempty"`
	// Set is as in an exit, and reads error.reason and error.message. One that cannot be evaluated leaves its value.
	Set map[string]string `json:"set,omitempty"`
}

// OnDelete is what a deletion does in a phase: exactly one field is set.
type OnDelete struct {
	// To is the phase that a deletion leads to.
	To string `json:"to,omitempty"`
	// Hold goes on as before; the text says why.
	Hold string `json:"hold,omitempty"`
	// Immediate lets the object go at once.
	Immediate bool `json:"immediate,omitempty"`
}

// Upgrade maps names of older revisions to those of this one, each as OLD: NEW, so that
// objects under way go on.
type Upgrade struct {
	// PhaseMap says where an object in a phase that is gone goes on.
	PhaseMap map[string]string `json:"phaseMap,omitempty"`
	// EffectMap says under which name an effect goes on that an object holds.
	EffectMap map[string]string `json:"effectMap,omitempty"`
	// StepMap says at which step an object goes on that stands at a step of the old name.
	// An object at any other step begins its phase anew, as after every change of the file.
	StepMap map[string]string `json:"stepMap,omitempty"`
	// RequestMap says under which name the token of a request is kept that was acted on.
	RequestMap map[string]string `json:"requestMap,omitempty"`
}

// Recovery is what becomes of an object that bears the machine's finalizer although
// nothing is stored of it: its state is lost, and the cluster has to say where it stood.
type Recovery struct {
	// When is a CEL condition, of Go guards as a rule; without it the entry always applies.
	// Only the last may lack it.
	When string `json:"when,omitempty"`
	// To is the phase in which the object goes on.
	To string `json:"to"`
	// Holds are the effects that may be in place then, in the order of taking. A release
	// of one that is not in place does nothing.
	Holds []string `json:"holds,omitempty"`
	// Reason of the transition, one CamelCase word; else StateRecovered.
	Reason string `json:"reason,omitempty"`
}
