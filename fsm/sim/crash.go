package sim

import (
	"fmt"
	"reflect"

	"github.com/phasegate/phasegate/fsm"
)

// Difference is a crash that changed the end of a story.
type Difference struct {
	// Where the driver was killed, for people.
	Where         string
	Calm, Crashed Ending
	// Defects that the crash brought about.
	Defects []string
}

// CrashEverywhere tells a story once undisturbed, and once more for each place
// where the driver can be killed: before and after each command. Begin makes the
// world anew for each. It answers how many crashes there were, and those that
// ended otherwise.
func CrashEverywhere(begin func() *World, story func(*World)) (crashes int, changed []Difference) {
	calm := begin()
	calm.Interrupt = func(fsm.Command, bool) bool { crashes++; return false }
	story(calm)
	want := calm.Ending()
	for at := range crashes {
		w, n, where := begin(), -1, "nowhere"
		w.Interrupt = func(cmd fsm.Command, done bool) bool {
			if n++; n == at {
				where = fmt.Sprintf("%s %s%s, command %d of %d", map[bool]string{false: "before", true: "after"}[done], cmd.Do, spaced(cmd.Action), at+1, crashes)
			}
			return n == at
		}
		story(w)
		if got := w.Ending(); len(w.Defects) > 0 || !reflect.DeepEqual(want, got) {
			changed = append(changed, Difference{Where: where, Calm: want, Crashed: got, Defects: w.Defects})
		}
	}
	return crashes, changed
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}
