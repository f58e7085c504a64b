package simulate

import (
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// KindScenario is the kind of a scenario file.
const KindScenario = "Scenario"

// Scenario is a scenario file that was read without a finding.
type Scenario struct {
	Content
	*diag.Source
}

// Content is what a scenario file says; docs/simulate.md explains it.
type Content struct {
	APIVersion  string `json:"apiVersion"`
	Kind        string `json:"kind"`
	Description string `json:"description,omitempty"`
	// Machine is the name of a machine, or a file relative to the scenario's.
	Machine string `json:"machine"`
	// Object is the object when it is created; what the API server fills in may be
	// left out.
	Object map[string]any `json:"object,omitempty"`
	Given  Given          `json:"given,omitempty"`
	Script []Step         `json:"script"`
}

// Given says what actions and guards answer.
type Given struct {
	Actions map[string][]ActionAnswer `json:"actions,omitempty"`
	Guards  map[string][]GuardSays    `json:"guards,omitempty"`
}

// ActionAnswer is success, or at most one of Wait, Error and Terminal.
type ActionAnswer struct {
	Outputs map[string]any `json:"outputs,omitempty"`
	// Wait says what is waited for; After is how soon to look again.
	Wait  string `json:"wait,omitempty"`
	After string `json:"after,omitempty"`
	// Error is a class, Terminal a reason; Message tells the rest.
	Error    string `json:"error,omitempty"`
	Terminal string `json:"terminal,omitempty"`
	Message  string `json:"message,omitempty"`
	// Takes is how long the call lasts.
	Takes string `json:"takes,omitempty"`
	// Times is how many calls it answers: 1, or for the last of a list, all that follow.
	Times int32 `json:"times,omitempty"`
}

// GuardSays is what a Go guard answers.
type GuardSays struct {
	Open  bool   `json:"open,omitempty"`
	Seen  string `json:"seen,omitempty"`
	Error string `json:"error,omitempty"`
	Times int32  `json:"times,omitempty"`
}

// Step of a script: exactly one field is set.
type Step struct {
	// Advance lets time pass.
	Advance string `json:"advance,omitempty"`
	// Until lets time pass until something holds.
	Until *Expect `json:"until,omitempty"`
	// Expect says what holds now.
	Expect *Expect `json:"expect,omitempty"`

	Annotate map[string]string `json:"annotate,omitempty"`
	// Set maps paths such as spec.type to values.
	Set    map[string]any `json:"set,omitempty"`
	Delete bool           `json:"delete,omitempty"`
	// Wake says which watched object changed.
	Wake string `json:"wake,omitempty"`
	// Given replaces answers from now on.
	Given *Given `json:"given,omitempty"`

	Crash *Crash `json:"crash,omitempty"`
	// Conflict makes somebody else write the object before the next status write.
	Conflict bool `json:"conflict,omitempty"`
}

// Crash kills the driver once: before or after an action, a step that calls one, or a verb of the engine.
type Crash struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Down is how long it stays away.
	Down string `json:"down,omitempty"`
}

// Expect is what holds of the object; all that is set must.
type Expect struct {
	// Phase is the machine's name of it.
	Phase string `json:"phase,omitempty"`
	Step  string `json:"step,omitempty"`
	// Message is contained in status.message.
	Message string `json:"message,omitempty"`
	// Reason is that of a condition.
	Reason string `json:"reason,omitempty"`
	// Conditions are Ready, Reconciling and Stalled.
	Conditions map[string]bool `json:"conditions,omitempty"`
	// Held is the ledger, InPlace what was really taken and not released.
	Held    []string `json:"held,omitzero"`
	InPlace []string `json:"inPlace,omitzero"`
	// State are state values that were assigned; others may have been.
	State map[string]any `json:"state,omitempty"`
	// Status are fields of spec.status that the object shows; it may show others. null: it is not shown.
	Status map[string]any `json:"status,omitempty"`
	// Path lists the phases that were entered, the last 20.
	Path []string `json:"path,omitzero"`
	Gone *bool    `json:"gone,omitempty"`
	// Within is for until: how much time may pass.
	Within string `json:"within,omitempty"`
}

// defaultWithin is how long until waits where the file says nothing.
const defaultWithin = 24 * time.Hour

// Load reads a scenario file strictly. It reads nothing but data, and may be called
// any number of times. The scenario is nil when there is a finding.
func Load(file string, data []byte) (*Scenario, diag.Diagnostics) {
	s := &Scenario{}
	var diags diag.Diagnostics
	if s.Source, diags = diag.Decode(file, data, &s.Content); len(diags) > 0 {
		return nil, diags
	}
	c := &checker{s: s}
	if s.APIVersion != v1alpha1.APIVersion || s.Kind != KindScenario {
		c.find("apiVersion", "PG000", "write apiVersion: "+v1alpha1.APIVersion+" and kind: "+KindScenario, "apiVersion %q, kind %q", s.APIVersion, s.Kind)
	}
	c.file()
	if len(c.diags) > 0 {
		return nil, c.diags.Sorted()
	}
	return s, nil
}

// duration reads what was checked by Load; nothing is 0.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}
