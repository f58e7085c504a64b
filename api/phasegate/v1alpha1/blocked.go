package v1alpha1

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// BlockedWays are the closed ways out, at most 16. On the wire they are one line of text, so
// that kubectl describe shows them in one: "→ Migrating: GUARD; seen: VALUE", or "step
// Preflight: GUARD; seen: VALUE", separated by " | ".
type BlockedWays []Blocked

// Blocked is one closed way out.
type Blocked struct {
	// To is the phase that cannot be entered yet; empty for a step that waits. It has at most
	// 63 characters.
	To string `json:"to,omitempty"`
	// Step is the step that waits; empty for an exit. It has at most 253 characters.
	Step string `json:"step,omitempty"`
	// Guard is the expression that is not true, of at most 1024 characters.
	Guard string `json:"guard"`
	// Value is the value seen, or the error of evaluating, of at most 1024 characters.
	Value string `json:"value,omitempty"`
}

// blockedNext separates two ways. One inside a value is replaced by what looks like it.
const blockedNext, blockedInside = " | ", " ¦ "

// blockedLine is what String writes: an exit or a step, what is not true, and what was seen.
var blockedLine = regexp.MustCompile(`(?s)^(?:→ (\S+): |step (\S+): )?(.*?)(?:; seen: (.*))?$`)

// String is one part of the line that MarshalJSON writes.
func (b Blocked) String() string {
	text := b.Guard
	switch {
	case b.To != "":
		text = "→ " + b.To + ": " + text
	case b.Step != "":
		text = "step " + b.Step + ": " + text
	}
	if b.Value != "" {
		text += "; seen: " + b.Value
	}
	return strings.ReplaceAll(oneLine(text), blockedNext, blockedInside)
}

// String is the line that MarshalJSON writes.
func (b BlockedWays) String() string {
	parts := make([]string, len(b))
	for i, way := range b {
		parts[i] = way.String()
	}
	return strings.Join(parts, blockedNext)
}

// MarshalJSON writes the line.
func (b BlockedWays) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// ToUnstructured is what MarshalJSON writes, without JSON.
func (b BlockedWays) ToUnstructured() any { return b.String() }

// UnmarshalJSON reads what MarshalJSON wrote, and the list of objects that earlier versions
// wrote. Any other text is an expression that is not true.
func (b *BlockedWays) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]Blocked)(b))
	}
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return fmt.Errorf("read the closed exits: %w", err)
	}
	*b = nil
	if line == "" {
		return nil
	}
	for text := range strings.SplitSeq(line, blockedNext) {
		part := blockedLine.FindStringSubmatch(text)
		*b = append(*b, Blocked{To: part[1], Step: part[2], Guard: part[3], Value: part[4]})
	}
	return nil
}

// oneLine keeps a text in one line of describe.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
