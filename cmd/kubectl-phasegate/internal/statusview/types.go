// Package statusview says where an object stands, in one value: for a terminal, for
// the dashboard and for programs.
//
// It is made from the object, its state and its machine file alone. It reads no cluster, writes
// nothing and knows no colours.
package statusview

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
)

// Overview is where one object stands at a moment. Durations are in seconds. It has the same
// fields for every kind; Progress, Lock, CopyAhead and Conflicts are set for migrations only.
type Overview struct {
	// Kind of the object; `kind` itself is what -o json calls an overview.
	Kind string `json:"objectKind"`
	// Namespace is empty for kinds that have none.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Machine and Revision are what drove the object last.
	Machine  string `json:"machine"`
	Revision string `json:"revision,omitempty"`
	// InForce is the revision of the file that all texts are from, where it is not that one.
	InForce string `json:"inForce,omitempty"`
	// Now is the moment that the rest is about.
	Now time.Time `json:"now"`

	// Phase is the machine's own; Phases are those that were passed, the present one, and the
	// way to success that is ahead.
	Phase       string  `json:"phase"`
	Description string  `json:"description,omitempty"`
	Phases      []Phase `json:"phases"`
	// Outcome says whether there is something to wait for.
	Outcome   Outcome    `json:"outcome"`
	EnteredAt *time.Time `json:"enteredAt,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	// Step is the one that runs or waits; nil between phases.
	Step *Step `json:"step,omitempty"`
	// Message is the sentence that the controller shows.
	Message string `json:"message,omitempty"`

	// WhyNot are the closed ways on, the step that waits among them.
	WhyNot []Closed `json:"whyNot,omitempty"`
	// Held is what is taken and would be released, in the order of taking.
	Held []Held `json:"held,omitempty"`
	// State are the state values that were assigned, as JSON.
	State map[string]json.RawMessage `json:"state,omitempty"`
	// OnDelete says what a deletion would do now; Deleting that it has begun.
	OnDelete *Deletion `json:"onDelete,omitempty"`
	Deleting bool      `json:"deleting,omitempty"`

	Progress  *Progress              `json:"progress,omitempty"`
	Lock      *Lock                  `json:"lock,omitempty"`
	CopyAhead *migrationv1.CopyAhead `json:"copyAhead,omitempty"`

	// Conflicts lists the first of ConflictCount.
	Conflicts     []migrationv1.Conflict `json:"conflicts,omitempty"`
	ConflictCount int32                  `json:"conflictCount,omitempty"`
	Conditions    []metav1.Condition     `json:"conditions,omitempty"`

	// Note says that all this is from the status of the object, which may be old, and why.
	// It is empty where it is from the MachineState.
	Note string `json:"note,omitempty"`
	// Stale says that all this may be old, since no manager writes it; nil where that is not known.
	Stale *live.Stale `json:"stale,omitempty"`
	// Orphans are the states of other objects, which are gone.
	Orphans []Orphan `json:"orphans,omitempty"`

	// Next is what would move it, the best first; empty where it moves by itself.
	Next []Remedy `json:"next,omitempty"`
	// History are the last transitions, the oldest first.
	History []Transition `json:"history,omitempty"`
}

// Deletion is v1alpha1.DeletionStatus, with its fields in JSON.
type Deletion v1alpha1.DeletionStatus

// String is a line for people.
func (d *Deletion) String() string { return (*v1alpha1.DeletionStatus)(d).String() }

// Outcome says whether there is something to wait for.
type Outcome string

// The outcomes.
const (
	// Running moves by itself.
	Running Outcome = "Running"
	// WaitsForPerson moves when somebody does what Next says.
	WaitsForPerson Outcome = "WaitsForPerson"
	// Succeeded is an end, or a rest in which the object is Ready; Failed is an end that only
	// a request or a deletion leaves.
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
)

// Phase is one of the line of those that were passed and those that lead to success.
type Phase struct {
	Name    string `json:"name"`
	Present bool   `json:"present,omitempty"`
	// Visited says that it was entered, as far as the history goes back.
	Visited bool `json:"visited,omitempty"`
	// Beside says that it is not on the way to success: a wait, a way back, a failure.
	Beside bool `json:"beside,omitempty"`
}

// Step is the step that runs, waits or is tried again.
type Step struct {
	Name string `json:"name"`
	// Does is the program's own sentence on the action.
	Does string `json:"does,omitempty"`
	// Number counts from 1 to Of.
	Number int `json:"number,omitempty"`
	Of     int `json:"of,omitempty"`
	// Attempts counts its errors in a row.
	Attempts int32 `json:"attempts,omitempty"`
	// NotBefore is when a step that failed is tried again.
	NotBefore *time.Time `json:"notBefore,omitempty"`
}

// Closed is a way on that is closed: to a phase, or past a step.
type Closed = v1alpha1.Blocked

// Held is something that was taken and is to be released.
type Held struct {
	Effect string `json:"effect"`
	// Acquire and Release are the actions, each with the program's sentence on it.
	Acquire string `json:"acquire,omitempty"`
	Release string `json:"release,omitempty"`
}

// Orphan is the state of an object that is gone, or has another UID by now.
type Orphan struct {
	// State is the name of the MachineState, Object that of the object.
	State     string    `json:"state"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Object    string    `json:"object"`
	UID       types.UID `json:"uid"`
	Phase     string    `json:"phase,omitempty"`
	// Held is what it holds, in the order of taking.
	Held []Held `json:"held,omitempty"`
	// Next is what the manager does about it, Command shows the state.
	Next    string `json:"next"`
	Command string `json:"command"`
}

// Progress counts what is copied.
type Progress struct {
	Total     int64  `json:"total"`
	Done      int64  `json:"done"`
	Conflicts int64  `json:"conflicts,omitempty"`
	Kinds     int32  `json:"kinds"`
	KindsDone int32  `json:"kindsDone"`
	Current   string `json:"current,omitempty"`
	// NotCopied names objects that no copy is made of, and why.
	NotCopied string `json:"notCopied,omitempty"`
	// OnlyInV3 names objects that are in force as soon as v3 is open, though v1 does not have them.
	OnlyInV3 string `json:"onlyInV3,omitempty"`
	// PerKind is in the order of copying; only kinds that have objects.
	PerKind []KindProgress `json:"perKind,omitempty"`
	// ObjectsPerSecond is 0 while nothing is measured, ExpectedEnd of the copy unset then.
	ObjectsPerSecond float64    `json:"objectsPerSecond,omitempty"`
	ExpectedEnd      *time.Time `json:"expectedEnd,omitempty"`
}

// KindProgress counts one kind. Total is -1 where the status does not tell.
type KindProgress struct {
	Kind      string `json:"kind"`
	Total     int64  `json:"total"`
	Done      int64  `json:"done"`
	Conflicts int64  `json:"conflicts,omitempty"`
}

// Lock is the lock of v1 while the migration could still release it.
type Lock struct {
	Mode  migrationv1.LockMode `json:"mode,omitempty"`
	Since *time.Time           `json:"since,omitempty"`
	// Seconds so far.
	Seconds  float64    `json:"seconds"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Remedy is something that a person can do.
type Remedy struct {
	// Why is a short sentence without a full stop.
	Why string `json:"why"`
	// Command is to be typed; empty where there is none.
	Command string `json:"command,omitempty"`

	// ofMachine says that Command reads the machine file, which -f may have named.
	ofMachine bool
}

// Transition is a way that was taken.
type Transition struct {
	From string    `json:"from,omitempty"`
	To   string    `json:"to"`
	At   time.Time `json:"at"`
	// Seconds that the phase left had lasted.
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}
