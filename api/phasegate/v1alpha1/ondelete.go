package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
)

// DeletionMode is what a deletion of an object does.
type DeletionMode string

// What a deletion does.
const (
	// DeletionTransition leads to another phase, which releases what is held if it undoes.
	DeletionTransition DeletionMode = "Transition"
	// DeletionHold goes on as before until a phase is entered in which a deletion does something.
	DeletionHold DeletionMode = "Hold"
	// DeletionImmediate lets the object go at once.
	DeletionImmediate DeletionMode = "Immediate"
	// DeletionInProgress is in the phases that carry a deletion out.
	DeletionInProgress DeletionMode = "InProgress"
	// DeletionBlocked waits until a person has repaired something: the phase is not known, the
	// state is lost, or nothing releases what is held.
	DeletionBlocked DeletionMode = "Blocked"
)

// DeletionStatus says what a deletion of an object would do. On the wire it is one line of
// text, as a Transition is.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=640
type DeletionStatus struct {
	// Mode is what it does.
	Mode DeletionMode `json:"mode"`
	// To is the phase that it leads to; set where the mode is Transition.
	To string `json:"to,omitempty"`
	// Message says why it waits, for people; set where the mode is Hold or Blocked.
	Message string `json:"message,omitempty"`
}

// deletionWords begin the line of each mode. The phase follows an arrow, a message a colon.
var deletionWords = map[DeletionMode]string{
	DeletionTransition: "→", DeletionHold: "hold", DeletionImmediate: "removed at once", DeletionInProgress: "going on", DeletionBlocked: "blocked",
}

// String is the line that MarshalJSON writes: "→ Aborting", "hold: TEXT", "removed at once".
func (d *DeletionStatus) String() string {
	if d == nil {
		return ""
	}
	text, known := deletionWords[d.Mode]
	if !known {
		text = deletionWords[DeletionBlocked]
	}
	if d.Mode == DeletionTransition {
		text += " " + d.To
	}
	if d.Message != "" {
		text += ": " + oneLine(d.Message)
	}
	return text
}

// MarshalJSON writes it as a line of text.
func (d DeletionStatus) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// ToUnstructured is what MarshalJSON writes, without JSON.
func (d DeletionStatus) ToUnstructured() any { return d.String() }

// UnmarshalJSON reads what MarshalJSON wrote, and the object that earlier versions wrote.
func (d *DeletionStatus) UnmarshalJSON(data []byte) error {
	type fields DeletionStatus
	if len(data) > 0 && data[0] == '{' {
		return json.Unmarshal(data, (*fields)(d))
	}
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return fmt.Errorf("read what a deletion does: %w", err)
	}
	if to, leads := strings.CutPrefix(line, "→ "); leads {
		to, message, _ := strings.Cut(to, ": ")
		*d = DeletionStatus{Mode: DeletionTransition, To: to, Message: message}
		return nil
	}
	word, message, _ := strings.Cut(line, ": ")
	for mode, begins := range deletionWords {
		if word == begins && mode != DeletionTransition {
			*d = DeletionStatus{Mode: mode, Message: message}
			return nil
		}
	}
	return fmt.Errorf("read what a deletion does: %q does not begin with →, hold, removed at once, going on or blocked", line)
}
