package builtin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/phasegate/phasegate/fsm"
)

const (
	// maxNotes is how long an entry of `saved` may be; the CRD of MachineState says the same.
	maxNotes = 64 << 10
	// noteRoom is more than a note without a message takes.
	noteRoom = 256
	keyVisit = "visit"
)

// readNotes is what an action has on record of this visit to the phase, under an entry of the state, by names that the action
// gives. Notes of earlier visits are left out.
func readNotes[N any](c *call, entry string) (map[string]N, error) {
	visit, notes := "", map[string]N{}
	if text := c.saved(entry); text != "" {
		var stored map[string]json.RawMessage
		err := json.Unmarshal([]byte(text), &stored)
		if err == nil && stored[keyVisit] != nil {
			err = json.Unmarshal(stored[keyVisit], &visit)
		}
		if err == nil && visit == c.status.Visit() {
			err = json.Unmarshal(stored[entry], &notes)
		}
		if err != nil {
			return nil, fmt.Errorf("read saved.%s of the MachineState: %w: remove it", entry, err)
		}
	}
	return notes, nil
}

// saveNote adds one.
func saveNote[N any](ctx context.Context, c *call, entry string, notes map[string]N, name string, note N) error {
	notes[name] = note
	text, err := encodeNotes(c, entry, notes, 0)
	if err != nil {
		return err
	}
	return c.save(ctx, entry, text)
}

// encodeNotes is an error where the notes and room for more do not fit.
func encodeNotes[N any](c *call, entry string, notes map[string]N, room int) (string, error) {
	text, err := json.Marshal(map[string]any{keyVisit: c.status.Visit(), entry: notes})
	if err == nil && len(text)+room > maxNotes {
		err = fsm.Terminal("TooManyNotes", "saved.%s of the MachineState has %d bytes of at most %d, and must keep what was done in this visit to the phase: move some of it to another phase", entry, len(text), maxNotes)
	}
	return string(text), err
}
