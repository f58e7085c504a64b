package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineStatus is where one run of a machine stands. In a MachineState it is the
// truth, and all that a run knows: nothing else survives a reconcile. In the status of
// the object it is a view of that, where its CRD keeps it: every pass repairs it, and
// nothing is decided by it. Written only by controllers/runner.
//
// +kubebuilder:object:generate=true
type MachineStatus struct {
	// Name of the machine, from metadata.name of its file.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// Revision is a hash of what the machine file says that last drove this object, without
	// comments and texts for people.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	Revision string `json:"revision,omitempty"`
	// PhaseRevision is a hash of what the steps of the phase do in that revision. While it
	// is the same, another revision goes on at the current step.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	PhaseRevision string `json:"phaseRevision,omitempty"`
	// Phase is the machine's own phase; status.phase shows it, or the phase's showAs.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Phase string `json:"phase,omitempty"`
	// Step is the step that runs, waits or failed last; empty before the first
	// and after the last step of the phase.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Step string `json:"step,omitempty"`
	// StepEnteredAt is when a `wait`, or a step with a timeout, began.
	// +optional
	StepEnteredAt *metav1.MicroTime `json:"stepEnteredAt,omitempty"`
	// StepIndex counts the steps of this visit to the phase that are done.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StepIndex int32 `json:"stepIndex,omitempty"`
	// EnteredAt is when the phase was entered.
	// +optional
	EnteredAt *metav1.MicroTime `json:"enteredAt,omitempty"`
	// EnteredAs is the name under which the phase was entered, where another revision
	// of the machine has renamed it since.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	EnteredAs string `json:"enteredAs,omitempty"`
	// FirstEnteredAt is what EnteredAt was before it was corrected, since it had come from a clock that was ahead. It
	// names the visit; no time is counted from it.
	// +optional
	FirstEnteredAt *metav1.MicroTime `json:"firstEnteredAt,omitempty"`
	// Generation is the metadata.generation at which the phase was entered.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Deadline is when the phase's timeout fires; unset when it has none.
	// +optional
	Deadline *metav1.MicroTime `json:"deadline,omitempty"`
	// Attempts counts the errors in a row of the current step.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// NotBefore is the time before which a step is not called again: after an error, the
	// end of the backoff; of a step that calls outside the cluster and waits, its first poll,
	// from which on it is called at whole intervals.
	// +optional
	NotBefore *metav1.MicroTime `json:"notBefore,omitempty"`
	// TriedGeneration is the metadata.generation that the call before NotBefore was about: a
	// later one is not held back by it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TriedGeneration int64 `json:"triedGeneration,omitempty"`
	// Held are the effects that were taken and not released, in the order of
	// taking, each with what releases it. An effect is here before its acquire
	// action is called.
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	Held HeldEffects `json:"held,omitempty"`
	// Loop is how far the current step has come with the items of its forEach; unset before it begins and after it.
	// +optional
	Loop *Loop `json:"loop,omitempty"`
	// Streak counts how often in a row `until` of the current step was true, where it must be so several times; unset where it
	// was not.
	// +optional
	Streak *Streak `json:"streak,omitempty"`
	// Acquiring is the effect in held whose acquire has not ended yet in this visit. Until it has, it is called
	// with the parameters on record.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Acquiring string `json:"acquiring,omitempty"`
	// Result holds the outputs of the steps of this visit to the phase, as JSON
	// text: one line of describe.
	// +kubebuilder:validation:MaxLength=131072
	// +optional
	Result string `json:"result,omitempty"`
	// State holds what exits have assigned to the state values of the machine, as JSON text. It is kept until the
	// state of the object goes.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	State string `json:"state,omitempty"`
	// Blocked says which exits (or which step) are closed, and by what, in one line:
	// "→ Migrating: GUARD; seen: VALUE | step Preflight: GUARD; seen: VALUE".
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=40000
	// +optional
	Blocked BlockedWays `json:"blocked,omitempty"`
	// OnDelete says what a deletion of this object would do now, in one line: "→ PHASE",
	// "hold: REASON", "removed at once", "going on" or "blocked: REASON".
	// +optional
	OnDelete *DeletionStatus `json:"onDelete,omitempty"`
	// Requests holds the tokens of the one-shot requests that were acted on.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Requests []RequestStatus `json:"requests,omitempty"`
	// History holds the last transitions, oldest first: up to 16 in a MachineState, the last
	// ones in the status of the object.
	// +kubebuilder:validation:MaxItems=20
	// +optional
	History []Transition `json:"history,omitempty"`
}

// Loop is how far a step has come with the items of its forEach.
//
// +kubebuilder:object:generate=true
type Loop struct {
	// Total is how many items there are.
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`
	// Done is how many of them are done.
	// +kubebuilder:validation:Minimum=0
	Done int32 `json:"done"`
	// Failed are those that have failed for good and are tolerated, as KEY: ERROR.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Failed []string `json:"failed,omitempty"`
	// Items are those that are neither, as JSON text; those under way come first. Only a MachineState has them.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Items string `json:"items,omitempty"`
}

// Streak is how often in a row `until` of a step was true.
//
// +kubebuilder:object:generate=true
type Streak struct {
	// Count is how often.
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
	// CountedAt is when it was counted last: the next answer counts a poll later. Only a MachineState has it.
	// +optional
	CountedAt *metav1.MicroTime `json:"countedAt,omitempty"`
}

// HistoryLimit is how many transitions the History of a MachineState keeps: as many as leave
// room for the rest in 60 lines of describe.
const HistoryLimit = 16

// Bounds of MachineStatus beside it: what the CRD of an object refuses would stop its machine, so a file that
// could get there is refused first. Lengths are in bytes.
const (
	EffectLimit  = 32
	RequestLimit = 16
	StateLimit   = 32
	HeldLimit    = 1024
	ItemLimit    = 1000
	FailureLimit = 100
	BlockedLimit = 16
	TextLimit    = 1024
	ReasonLimit  = 128
	TokenLimit   = 253
)

// HistoryShown is how many of them the status of an object shows at most. A kind that has
// more to show leaves less room for them.
const HistoryShown = 8

// SamePosition tells whether two statuses are about one visit to a step, after as many errors and as many good answers: what
// one of them shows is true of the other.
func (s *MachineStatus) SamePosition(other *MachineStatus) bool {
	return s.Phase == other.Phase && s.Step == other.Step && s.StepIndex == other.StepIndex && s.Attempts == other.Attempts && s.InARow() == other.InARow()
}

// InARow is how often in a row `until` of the current step was true; 0 where that is not counted.
func (s *MachineStatus) InARow() int32 {
	if s.Streak == nil {
		return 0
	}
	return s.Streak.Count
}

// KeepShown takes over what only a view of the same position has, since it is not worth a write of the state: blocked,
// onDelete, and the outputs of the step that is called again. Take these for no more than a text: a status can be forged.
// It may be called twice.
func (s *MachineStatus) KeepShown(view *MachineStatus) {
	if s.SamePosition(view) {
		s.Blocked, s.OnDelete, s.Result = view.Blocked, view.OnDelete, cmp.Or(view.Result, s.Result)
	}
}

// RequestStatus holds the tokens of a one-shot request that were acted on.
type RequestStatus struct {
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Token is the one that was acted on last.
	// +kubebuilder:validation:MaxLength=253
	Token string `json:"token"`
	// Earlier stands for those before it, separated by blanks, the newest first: of times
	// (RFC 3339) the latest, of other tokens the first 16 digits of their SHA-256. A time must be later than it,
	// another token must not be among them.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Earlier string `json:"earlier,omitempty"`
}

// Transition is one edge that was taken. On the wire it is one line of text (see
// transition.go), so that kubectl describe shows a history in as many lines as
// it has transitions.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=900
type Transition struct {
	// From is the phase left; empty for the first.
	From string
	// To is the phase entered.
	To string
	// At is when the edge was taken.
	At metav1.MicroTime
	// Took is how long the phase left had lasted.
	Took metav1.Duration
	// Reason is one word, at most 128 characters.
	Reason string
	// Message says more where the reason is an error; at most 512 characters.
	Message string
}

// ShowHistory leaves the last transitions.
func (s *MachineStatus) ShowHistory(most int) {
	s.History = s.History[max(0, len(s.History)-most):]
}

// Visit names the visit to the phase that the object is in. It stays the same when an action
// is repeated, also after a crash, after a change of the machine file, after a rename of the
// phase, and after a correction of the clock. It is another one each time that a phase is entered. What an action makes under
// this name is found again, and is not made twice.
func (s *MachineStatus) Visit() string {
	since := ""
	if at := cmp.Or(s.FirstEnteredAt, s.EnteredAt); at != nil {
		since = at.UTC().Format(time.RFC3339Nano)
	}
	return cmp.Or(s.EnteredAs, s.Phase) + "\x00" + since
}
