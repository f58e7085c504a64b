package simulate

import (
	"fmt"
	"reflect"
	"strings"

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

func (d Difference) String() string {
	text := fmt.Sprintf("a crash %s changes the end: without it %+v, with it %+v", d.Where, d.Calm, d.Crashed)
	if len(d.Defects) > 0 {
		text = fmt.Sprintf("a crash %s: %s", d.Where, strings.Join(d.Defects, "; "))
	}
	return text
}

// CrashEverywhere tells a story once undisturbed, and once more for each place
// where the driver can be killed: before and after each command, the first time
// that it is given in a visit to a phase. Begin makes the world anew for each. It
// answers how many crashes there were, and those that ended otherwise.
func CrashEverywhere(begin func() *Fake, story func(*Fake)) (crashes int, changed []Difference) {
	calm, n, places := begin(), 0, []int{}
	seen := map[string]bool{}
	calm.Interrupt = func(cmd fsm.Command, done bool) bool {
		n++
		st := calm.Stored
		place := fmt.Sprint(st.Phase, len(st.History), st.StepIndex, st.HeldNames(), cmd.Do, cmd.Action, cmd.Step, cmd.Effect, done)
		if !seen[place] {
			seen[place] = true
			places = append(places, n)
		}
		return false
	}
	story(calm)
	want := calm.Ending()
	for _, at := range places {
		w, n, where := begin(), 0, ""
		w.Interrupt = func(cmd fsm.Command, done bool) bool {
			if n++; n == at {
				where = fmt.Sprintf("%s %s in phase %s", beforeOrAfter(done),
					strings.TrimSpace(fmt.Sprint(cmd.Do, " ", cmd.Action)), w.Stored.Phase)
			}
			return n == at
		}
		story(w)
		if got := w.Ending(); len(w.Defects) > 0 || !reflect.DeepEqual(want, got) {
			changed = append(changed, Difference{Where: where, Calm: want, Crashed: got, Defects: w.Defects})
		}
	}
	return len(places), changed
}
