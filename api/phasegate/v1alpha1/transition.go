package v1alpha1

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transitionLine is what String writes: time, edge, and what is known of it.
var transitionLine = regexp.MustCompile(`(?s)^(\S+) (?:(\S+) )?→ (\S*?)(?: after (\S+?))?(?:: (\S*?)(?:: (.*))?)?$`)

// String is the line that MarshalJSON writes, for example
// "2026-11-21T02:16:48.838849Z Pending → Migrating after 1.659s: ReadyToCutOver".
// A message follows its reason after a colon.
func (t Transition) String() string {
	line := t.At.UTC().Format(metav1.RFC3339Micro)
	if t.From != "" {
		line += " " + t.From
	}
	line += " → " + t.To
	if t.From != "" {
		line += " after " + t.Took.Duration.String()
	}
	if t.Reason != "" || t.Message != "" {
		line += ": " + t.Reason
	}
	if t.Message != "" {
		line += ": " + t.Message
	}
	return line
}

// MarshalJSON writes the transition as a line of text.
func (t Transition) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// ToUnstructured is what MarshalJSON writes, without JSON: every look at an object
// converts its whole history.
func (t Transition) ToUnstructured() any { return t.String() }

// UnmarshalJSON reads what MarshalJSON wrote; anything else is an error.
func (t *Transition) UnmarshalJSON(data []byte) error {
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return fmt.Errorf("read a transition: %w", err)
	}
	part := transitionLine.FindStringSubmatch(line)
	if part == nil {
		return fmt.Errorf("read a transition: %q has not the form \"TIME FROM → TO after DURATION: REASON\"", line)
	}
	at, err := time.Parse(metav1.RFC3339Micro, part[1])
	if err != nil {
		return fmt.Errorf("read the time of a transition: %w", err)
	}
	took := time.Duration(0)
	if part[4] != "" {
		if took, err = time.ParseDuration(part[4]); err != nil {
			return fmt.Errorf("read the duration of a transition: %w", err)
		}
	}
	// As metav1 does: times of the API are local ones.
	*t = Transition{From: part[2], To: part[3], At: metav1.NewMicroTime(at.Local()),
		Took: metav1.Duration{Duration: took}, Reason: part[5], Message: part[6]}
	return nil
}
