package fsm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/show/graph"
	"github.com/phasegate/phasegate/fsm/verify/prove"
)

// refusing is a machine whose event AllVerified a callback refuses.
func refusing(m *fsm.Machine) *fsm.Machine {
	return m.Altered(nil, looplab.Callbacks{"before_AllVerified": func(_ context.Context, e *looplab.Event) { e.Cancel(errors.New("not today")) }})
}

// astray is a machine whose event AllVerified leads to another phase than its file says.
func astray(m *fsm.Machine, to string) *fsm.Machine {
	return m.Altered(func(_ string, all []looplab.EventDesc) []looplab.EventDesc {
		for i := range all {
			if all[i].Name == "AllVerified" {
				all[i].Dst = to
			}
		}
		return all
	}, nil)
}

// The events decide where a simulated object goes, and nothing else.
func TestEventsCarryTheSimulation(t *testing.T) {
	m := shipped(t).Machine
	for name, c := range map[string]struct {
		why     string
		m       *fsm.Machine
		phase   string
		stalled string
	}{
		"as the file says": {"the twin of the others", m, "Converged", ""},
		"refused":          {"it stands still, and says why", refusing(m), "Migrating", "illegal transition: AllVerified from Migrating: not today"},
		"astray":           {"it goes where the event leads", astray(m, "WaitingForConflictResolution"), "WaitingForConflictResolution", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, c.m, map[string]any{"type": "APIServerToCRDs"})
			verified := false
			err := w.Run(10*time.Minute, func() bool {
				verified = verified || slices.Contains(w.Called, "Verify")
				return verified && (w.Stored.Phase != "Migrating" || c.stalled != "" && strings.Contains(w.Shown.Message, c.stalled))
			})
			if err != nil {
				t.Fatal(err)
			}
			if w.Stored.Phase != c.phase || !strings.Contains(w.Shown.Message, c.stalled) {
				t.Errorf("%s: in %s, want %s: %s", c.why, w.Stored.Phase, c.phase, w.Shown.Message)
			}
		})
	}
}

// The proof goes by the same events, and finds what comes of them.
func TestEventsCarryTheProof(t *testing.T) {
	m := shipped(t).Machine
	for name, c := range map[string]struct {
		why, message, trace string
		m                   *fsm.Machine
	}{
		"refused": {"a machine that stands still is a defect", "gets stuck (IllegalTransition): illegal transition: AllVerified from Migrating: not today", "", refusing(m)},
		"astray":  {"so is one that ends with all in place", "invariant released: Failed is terminal, and", "→ Failed (AllVerified)", astray(m, "Failed")},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := prove.Prove(c.m, prove.Options{})
			found := slices.ContainsFunc(diags, func(d diag.Diagnostic) bool {
				return strings.Contains(d.Message, c.message) && (c.trace == "" || slices.Contains(d.Trace, c.trace))
			})
			if !found {
				t.Errorf("%s: %v", c.why, diags)
			}
		})
	}
}

// What looplab/fsm draws of its events is what we draw of the file: each arrow, and each name.
func TestDrawingsAgreeWithLooplab(t *testing.T) {
	for name, m := range proved(t) {
		t.Run(name, func(t *testing.T) {
			var all []looplab.EventDesc
			for _, phase := range m.Phases() {
				all = append(all, m.Events(phase)...)
			}
			theirs, err := looplab.VisualizeWithType(looplab.NewFSM(m.Definition().Spec.Initial, all, nil), looplab.MermaidStateDiagram)
			if err != nil {
				t.Fatal(err)
			}
			arrows, named := drawn(theirs)
			ours, edges := map[string]bool{}, map[string]bool{}
			for line := range strings.Lines(graph.Mermaid(m, graph.Options{})) {
				fields := strings.Fields(strings.ReplaceAll(line, "phase_", ""))
				if len(fields) > 2 && strings.HasPrefix(fields[1], "-") {
					ours[fields[0]+" to "+fields[len(fields)-1]] = true
				}
			}
			for _, e := range m.Edges() {
				edges[e.From+" to "+e.To+": "+e.Event] = true
			}
			if d := cmp.Diff(arrows, ours); d != "" || len(ours) == 0 {
				t.Errorf("%d arrows (-looplab +ours):\n%s", len(ours), d)
			}
			if d := cmp.Diff(named, edges); d != "" {
				t.Errorf("events (-looplab +ours):\n%s", d)
			}
		})
	}
}

// drawn are the arrows of a state diagram of looplab/fsm, without and with the names of events. What leads from a phase to
// itself is a step.
func drawn(diagram string) (arrows, named map[string]bool) {
	arrows, named = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(diagram) {
		from, rest, arrow := strings.Cut(strings.TrimSpace(line), " --> ")
		to, event, labelled := strings.Cut(rest, ": ")
		if arrow && labelled && from != to {
			arrows[from+" to "+to], named[from+" to "+to+": "+event] = true, true
		}
	}
	return arrows, named
}

// Two of one name would be one to looplab/fsm: the second, without a word.
func TestNamesAreUniqueInAPhase(t *testing.T) {
	for name, c := range map[string]struct {
		why, phase string
		want       string // empty: it is taken
	}{
		"two exits of one reason":     {"which of the two?", "poll: 5s, next: [{to: Done, when: 'guards.a', reason: R}, {to: Two, reason: R}]", "there is another R here, in line"},
		"to one phase":                {"history could not tell them apart", "poll: 5s, next: [{to: Done, when: 'guards.a', reason: R}, {to: Done, reason: R}]", "there is another R here, in line"},
		"two without a reason":        {"they are one: it is left for Done", "poll: 5s, next: [{to: Done, when: 'guards.a'}, {to: Done}]", ""},
		"a reason that is a target":   {"the other one has its name by default", "poll: 5s, next: [{to: Two, when: 'guards.a', reason: Done}, {to: Done}]", "there is another Done here"},
		"a step twice":                {"a step is an event, too", "steps: [{action: Work}, {action: Work}], next: [{to: Done}, {to: Two, when: 'false'}]", "there is another Work here"},
		"a step with a name":          {"that is what names are for", "poll: 5s, steps: [{action: Work}, {name: Again, action: Work}], next: [{to: Two, when: 'guards.a'}, {to: Done}]", ""},
		"a step and an exit":          {"of one name", "steps: [{action: Work}], next: [{to: Done, reason: Work}]", "there is another Work here"},
		"an exit named as a deletion": {"whose name is reserved", "next: [{to: Done, reason: DeletionRequested}]", "there is another DeletionRequested here"},
		"waits":                       {"call nothing, and are no events", "poll: 5s, steps: [{wait: 1s}, {wait: 2s}], next: [{to: Two, when: 'guards.a'}, {to: Done}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := phases("  - {name: One, kind: waiting, " + c.phase + ", onDelete: {to: Out}}\n  - {name: Two, terminal: failure, onDelete: {to: Out}}\n" + rest)
			def, diags := program.Load("test.yaml", []byte(file))
			if def == nil {
				t.Fatal(diags)
			}
			_, diags = fsm.Bind(def, testBindings)
			found := slices.ContainsFunc(diags, func(d diag.Diagnostic) bool { return d.Code == "PG000" && strings.Contains(d.Message, c.want) })
			if found != (c.want != "") {
				t.Errorf("%s: %v", c.why, diags)
			}
		})
	}
}
