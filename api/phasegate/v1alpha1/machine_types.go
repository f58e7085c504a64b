package v1alpha1

// Machine is a machine file: the phases of one kind of object, the steps of
// each phase, the guards of each transition. Field by field: docs/machine-format.md.
type Machine struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   FileMeta    `json:"metadata"`
	Spec       MachineSpec `json:"spec"`
}

// FileMeta names a file object.
type FileMeta struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
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
	// Facts are named expressions for use in guards.
	Facts []Named `json:"facts,omitempty"`
	// Actions are actions of the program under a name and with parameters of the
	// machine's own, for steps and effects.
	Actions []NamedAction `json:"actions,omitempty"`
	// Effects are things that must never leak.
	Effects []Effect `json:"effects,omitempty"`
	// Requests are one-shot commands by a person or a tool.
	Requests []Request `json:"requests,omitempty"`
	// Phases, the first of which need not be the initial one.
	Phases []Phase `json:"phases"`
	// Invariants are proved over every reachable state by `lint --prove`.
	Invariants []Named `json:"invariants,omitempty"`
	// Upgrade says how objects in a phase of an older revision are adopted.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// ObjectKind names an API kind.
type ObjectKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Defaults of phases.
type Defaults struct {
	// Poll is a Go duration such as 60s.
	Poll  string `json:"poll,omitempty"`
	Retry *Retry `json:"retry,omitempty"`
}

// Watch is an object, or all owned objects of a kind, whose changes wake the owner.
type Watch struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name,omitempty"`
	Owned      bool   `json:"owned,omitempty"`
}

// Named is a named CEL expression.
type Named struct {
	Name string `json:"name"`
	Expr string `json:"expr"`
}

// NamedAction is an action of the program with parameters.
type NamedAction struct {
	Name string `json:"name"`
	// Use is the name of the program's action.
	Use  string         `json:"use"`
	With map[string]any `json:"with,omitempty"`
}

// Effect is a thing that must never leak, with the action that takes it and
// the action that gives it back.
type Effect struct {
	Name    string `json:"name"`
	Acquire string `json:"acquire"`
	Release string `json:"release"`
}

// Request is a one-shot command: it is pending while its token is not empty
// and differs from the one acted on last.
type Request struct {
	Name   string            `json:"name"`
	Token  string            `json:"token"`
	Valid  string            `json:"valid,omitempty"`
	Params map[string]string `json:"params,omitempty"`
	Record *Record           `json:"record,omitempty"`
}

// Record names an annotation that shows the last token acted on.
type Record struct {
	Annotation string `json:"annotation"`
}

// Phase is one state of the machine.
type Phase struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// ShowAs is what status.phase shows instead of the name.
	ShowAs string `json:"showAs,omitempty"`
	// Kind is progressing (the default), waiting or steady.
	Kind string `json:"kind,omitempty"`
	// Terminal is success or failure.
	Terminal string `json:"terminal,omitempty"`
	Deletion bool   `json:"deletion,omitempty"`
	End      bool   `json:"end,omitempty"`

	Require []Require `json:"require,omitempty"`
	Steps   []Step    `json:"steps,omitempty"`
	Next    []Exit    `json:"next,omitempty"`
	Timeout *Timeout  `json:"timeout,omitempty"`
	Retry   *Retry    `json:"retry,omitempty"`
	OnError []OnError `json:"onError,omitempty"`
	// Poll is a Go duration such as 10s.
	Poll    string  `json:"poll,omitempty"`
	Watch   []Watch `json:"watch,omitempty"`
	Message string  `json:"message,omitempty"`

	OnDelete *OnDelete `json:"onDelete,omitempty"`
	// Keeps names effects that stay in place for good from the entry into this
	// phase on: they leave the ledger, and nobody gives them back.
	Keeps []string `json:"keeps,omitempty"`
	// PointOfNoReturn says that no way leads from here to an undo.
	PointOfNoReturn bool `json:"pointOfNoReturn,omitempty"`
}

// Require is a precondition of the first visit, checked before the finalizer.
type Require struct {
	When   string `json:"when"`
	Else   string `json:"else"`
	Reason string `json:"reason,omitempty"`
	// Message is a template shown when the precondition does not hold.
	Message string `json:"message,omitempty"`
}

// Step is one thing to do: an action, `undo: held`, or `wait: 10s`.
type Step struct {
	Action string `json:"action,omitempty"`
	Undo   string `json:"undo,omitempty"`
	Wait   string `json:"wait,omitempty"`

	// Name of the step where the action's is not telling or not unique.
	Name string `json:"name,omitempty"`
	// With are the parameters of the action, laid over those of a named action.
	// A text may hold ${CEL}; a text that is one ${CEL} keeps its type.
	With map[string]any `json:"with,omitempty"`
	If   string         `json:"if,omitempty"`
	// Until must become true before the next step; checked every Poll.
	Until   string `json:"until,omitempty"`
	Poll    string `json:"poll,omitempty"`
	Retry   *Retry `json:"retry,omitempty"`
	Message string `json:"message,omitempty"`
}

// Exit is a way to another phase; the first whose When is true is taken.
type Exit struct {
	To      string `json:"to"`
	When    string `json:"when,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Timeout is a deadline counted from the entry into the phase.
type Timeout struct {
	After string `json:"after"`
	To    string `json:"to,omitempty"`
	// Stalled is a reason: raise the condition and stay.
	Stalled string `json:"stalled,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Retry is a backoff. Attempts 0 means: never give up.
type Retry struct {
	Base     string   `json:"base,omitempty"`
	Factor   float64  `json:"factor,omitempty"`
	Max      string   `json:"max,omitempty"`
	Jitter   *float64 `json:"jitter,omitempty"`
	Attempts int32    `json:"attempts,omitempty"`
	To       string   `json:"to,omitempty"`
}

// OnError is where a class of error leads once it is not retried any more.
type OnError struct {
	Is     string `json:"is"`
	To     string `json:"to"`
	Reason string `json:"reason,omitempty"`
}

// OnDelete is what a deletion does in a phase: exactly one field is set.
type OnDelete struct {
	To   string `json:"to,omitempty"`
	Hold string `json:"hold,omitempty"`
	None bool   `json:"none,omitempty"`
}

// Upgrade maps phases of older revisions.
type Upgrade struct {
	From     string            `json:"from,omitempty"`
	PhaseMap map[string]string `json:"phaseMap,omitempty"`
}
