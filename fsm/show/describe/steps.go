package describe

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// step tells what a step does; pace is its own, usual that of the phase.
func (t *Describer) step(p *program.Phase, s *program.Step, usual, pace fsm.Pace) Step {
	out := Step{Name: s.Label}
	note := func(is bool, format string, args ...any) {
		if is {
			out.Notes = append(out.Notes, fmt.Sprintf(format, args...))
		}
	}
	note(s.If != "", "only if %s", s.If)
	if f := s.ForEach; f != nil {
		note(true, "once for each item of %s", f.In)
		note(f.Key != "", "an item is known by %s", f.Key)
		note(f.Parallel != nil, "items under way at a time: %v", f.Parallel)
		note(f.ToleratedFailures > 0, "goes on while no more than %d fail for good", f.ToleratedFailures)
	}
	switch {
	case s.Wait != "":
		out.Does = "Waits " + atMost(s.Wait, s.Max) + "."
	case s.Undo != "":
		if s.Undo != program.UndoHeld {
			out.Does = fmt.Sprintf("Releases %s, newest first", s.Undo)
			if s.Keys != "" {
				out.Does += ", for the keys " + s.Keys
			}
			out.Does += "."
			break
		}
		out.Does = "Releases what is held, newest first: " + cmp.Or(backwards(t.effects.entry[p.Name]), "nothing can be held here") + "."
	default:
		t.action(s, &out, note)
	}
	note(s.FailWhen != "", "fails for good when %s", s.FailWhen)
	note(s.Until != "" && pace.Poll > 0, "repeated every %s until %s", short(pace.Poll), s.Until)
	note(s.Until != "" && pace.Poll == 0, "repeated at each change until %s", s.Until)
	note(s.Consecutive > 0, "that must be true %d times in a row", s.Consecutive)
	note(s.Action != "" && s.Until == "" && s.Poll != "", "looked at again every %s while it is not done", short(pace.Poll))
	note(s.Timeout != "", "fails for good when it is not done after %s (StepTimedOut)", atMost(s.Timeout, s.Max))
	note(s.Message != "", "the message meanwhile is: %s", s.Message)
	own, others := afterError(p, usual.Poll, pace), afterError(p, usual.Poll, usual)
	note(own != others, "%s", own)
	return out
}

// atMost is a duration as the file has it, and its bound.
func atMost(duration, most string) string {
	return program.TimeoutText(&v1alpha1.Timeout{After: duration, Max: most})
}

// action tells what the program says of an action, and which effect it is of.
func (t *Describer) action(s *program.Step, out *Step, note func(bool, string, ...any)) {
	use, with := s.Action, map[string]any{}
	for _, a := range t.m.Definition().Spec.Actions {
		if a.Name == s.Action {
			use = a.Use
			maps.Copy(with, a.With)
		}
	}
	maps.Copy(with, s.With)
	out.Does = t.known.Actions[use].Doc
	note(use != out.Name, "the action is %s", use)
	note(len(with) > 0, "with %s", inline(with))
	note(s.Acquires != "", "takes %s: it stands in status.machine.held before this step begins", s.Acquires)
	note(s.Releases != "", "releases %s", s.Releases)
}

func inline(with map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(with)) {
		text := ""
		if data, err := yaml.Marshal(with[name]); err == nil {
			text = strings.Join(strings.Fields(string(data)), " ")
		}
		parts = append(parts, name+": "+text)
	}
	return strings.Join(parts, ", ")
}

// afterError tells what an error leads to; who waits for a person looks again at
// the pace of the phase, whatever happens.
func afterError(p *program.Phase, poll time.Duration, pace fsm.Pace) string {
	text := fmt.Sprintf("after an error: again in %s", short(pace.Base))
	switch {
	case p.Kind == v1alpha1.PhaseWaiting && poll > 0:
		text = fmt.Sprintf("after an error: again in %s", short(poll))
	case pace.Max > pace.Base && pace.Factor > 1:
		text += fmt.Sprintf(", then %s times as long, at most %s", strconv.FormatFloat(pace.Factor, 'g', -1, 64), short(pace.Max))
	}
	switch {
	case pace.Attempts == 0 && len(pace.NonRetryable) == 0:
		return text + ", without end"
	case pace.To != "":
		return text + fmt.Sprintf("; after %s → %s", pace.EndsBy(), pace.To)
	}
	return text + fmt.Sprintf("; after %s Stalled, then every %s", pace.EndsBy(), short(pace.Max))
}

// short leaves out what is zero: 24h, not 24h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// reads tells whether an expression speaks of a name, and not of a longer one.
func reads(expr, name string) bool {
	found, err := regexp.MatchString(`\b`+regexp.QuoteMeta(name)+`\b`, expr)
	return err == nil && found
}
