package runner

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// noteLimit is how many bytes the API server takes in an Event's note. It
// refuses a longer one, and the Event would be lost.
const noteLimit = 1024

// Cut shortens s to at most limit bytes and never splits a character.
func Cut(s string, limit int) string { return expr.Clip(s, limit) }

// tell emits an Event; a long note is cut.
func tell(recorder events.EventRecorder, about runtime.Object, kind, reason, action, note string) {
	recorder.Eventf(about, nil, kind, reason, action, "%s", Cut(note, noteLimit))
}
