package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const scenarioHead = "apiVersion: phasegate.dev/v1alpha1\nkind: Scenario\nmachine: m\n"

// The first line after the head is 4.
func TestScenariosAreReadStrictly(t *testing.T) {
	m := machine(t, strings.Replace(named, "poll: 10s}]\n", "poll: 10s}, {name: Again, action: Look}]\n    require: [{when: 'guards.dry', else: Two}]\n", 1))
	for name, c := range map[string]struct {
		why, file string
		want      []string
	}{
		"good": {"every field has its place", `given:
  actions:
    Apply: [{}]
    ApplyJob: [{error: Timeout, message: m, takes: 1s, times: 3}, {terminal: T, message: m}, {wait: w, after: 1s}]
    Look: [{outputs: {n: 1, ratio: 1.5, ok: true, age: 5s, text: t, list: [a], object: {a: 1}, any: x}}]
  guards: {dry: [{open: true, seen: s}, {error: e, times: 2}]}
script:
- advance: 1s
- until: {phase: One, step: Look, message: m, reason: R, conditions: {Ready: false}, held: [], inPlace: [], path: [One], gone: false, within: 1h}
- annotate: {a: b}
- set: {spec.a: {b: 1}, metadata.labels.x: y, data.key: v}
- wake: text
- given: {actions: {Look: [{}]}}
- crash: {before: ApplyVolume, down: 1h}
- crash: {after: Commit}
- conflict: true
- delete: true
- expect: {gone: true}
`, nil},
		"kind":                        {"another kind of file", "script: []\n", nil},
		"unknown field":               {"not ignored", "skript: []\n", []string{"1:1: PG000: the file has no script", `4:1: PG000: unknown field "skript"`}},
		"two in a step":               {"which comes first?", "script:\n- {delete: true, advance: 5s}\n", []string{"5:3: PG000: a step of a script does exactly one thing, this one 2"}},
		"nothing":                     {"a step that does nothing is a mistake", "script:\n- {}\n", []string{"5:3: PG000: a step of a script does exactly one thing, this one 0"}},
		"duration":                    {"5 has no unit", "script:\n- advance: '5'\n- until: {gone: true, within: -5s}\n", []string{`5:12: PG000: "5" is not a positive duration`, `6:31: PG000: "-5s" is not a positive duration`}},
		"within":                      {"expect is about now", "script:\n- expect: {gone: true, within: 1h}\n", []string{"5:32: PG000: expect is about now"}},
		"no expectation":              {"it would always hold", "script:\n- until: {within: 1h}\n", []string{"5:10: PG000: nothing is expected"}},
		"condition":                   {"misspelled", "script:\n- expect: {conditions: {Raedy: true}}\n", []string{`5:32: PG000: unknown condition "Raedy"`}},
		"status":                      {"the machine's", "script:\n- set: {status.phase: One}\n- set: {metadata.name: y}\n- set: {'': 1}\n", []string{"5:8: PG000: status.phase is not for writing", "6:8: PG000: metadata.name is not for writing", `7:8: PG000: "" is no path`}},
		"two outcomes":                {"which?", "given: {actions: {Look: [{outputs: {}, wait: w}]}}\nscript: []\n", []string{"4:26: PG000: an answer is at most one of"}},
		"class":                       {"it would never be caught", "given: {actions: {Look: [{error: Fatal}]}}\nscript: []\n", []string{`4:34: PG000: unknown class of error "Fatal"`}},
		"message alone":               {"of what?", "given: {actions: {Look: [{message: m, after: 1s, times: -1}]}}\nscript: []\n", []string{"4:36: PG000: a message without an error", "4:46: PG000: after is for an answer that waits", "4:57: PG000: times is -1"}},
		"crash":                       {"when?", "script:\n- crash: {down: 1h}\n", []string{"5:10: PG000: a crash is either before or after something"}},
		"unknown action":              {"nobody would ask for the answer", "given: {actions: {Loook: [{}]}}\nscript: []\n", []string{`4:26: PG005: machine m never calls an action "Loook"`}},
		"step":                        {"more exact than its action", "given: {actions: {One/Again: [{outputs: {n: 1}}], Again: [{outputs: {n: 1}}], Two/Look: [{}]}}\nscript: []\n", []string{`4:89: PG005: machine m never calls an action "Two/Look", and has no step of this name`}},
		"output of a step":            {"checked as that of its action", "given: {actions: {Again: [{outputs: {m: 1}}]}}\nscript: []\n", []string{`4:41: PG005: action Look has no output "m"`}},
		"unknown guard":               {"nobody would ask", "given: {guards: {wet: [{}]}}\nscript: []\n", []string{`4:23: PG005: guard "wet" is not known`}},
		"unknown output":              {"no expression reads it", "given: {actions: {Look: [{outputs: {m: 1}}]}}\nscript: []\n", []string{`4:40: PG005: action Look has no output "m"`}},
		"type of output":              {"the program would never answer that", "given: {actions: {Look: [{outputs: {n: one}}]}}\nscript: []\n", []string{"4:40: PG005: output n of Look is one, not of type int"}},
		"unknown phase":               {"it would never be reached", "script:\n- until: {phase: Onee}\n- expect: {path: [Two, Tree]}\n", []string{`5:18: PG001: phase "Onee" does not exist`, `6:24: PG001: phase "Tree" does not exist`}},
		"unknown effect":              {"it would never be held", "script:\n- expect: {held: [lock]}\n- expect: {inPlace: [lokc]}\n", []string{`5:19: PG005: effect "lock" is not declared`, `6:22: PG005: effect "lokc" is not declared`}},
		"unknown value":               {"it would never be assigned", "script:\n- expect: {state: {n: 1}}\n", []string{`5:23: PG005: state value "n" is not declared`}},
		"unknown field of the status": {"it would never be shown", "script:\n- expect: {status: {n: 1}}\n", []string{`5:24: PG005: spec.status has no field "n"`}},
		"unknown crash":               {"it would never come", "script:\n- crash: {after: Lock}\n", []string{`5:10: PG005: machine m never calls an action "Lock", and has no step of this name`}},
		"object":                      {"of another kind", "object: {kind: Other}\nscript: []\n", []string{"4:9: PG000: object.kind is Other"}},
		"later answers":               {"checked like the first", "script:\n- given: {actions: {Loook: [{}]}}\n", []string{`5:28: PG005: machine m never calls an action "Loook"`}},
		"several at once":             {"one round of corrections", "given: {actions: {Loook: [{}], Look: [{outputs: {m: 1}}]}}\nscript:\n- until: {phase: Onee}\n", []string{"4:26: PG005: machine m never", "4:53: PG005: action Look has", "6:18: PG001: phase"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, diags := simulate.Load("s.yaml", []byte(scenarioHead+c.file))
			if s != nil {
				diags = s.Check(m)
			}
			var got []string
			for i, d := range diags {
				text := fmt.Sprintf("%d:%d: %s: %s", d.Line, d.Column, d.Code, d.Message)
				if i < len(c.want) && strings.HasPrefix(text, c.want[i]) {
					text = c.want[i]
				}
				if d.Fix == "" || d.File != "s.yaml" {
					t.Errorf("%s: a finding without file or fix: %+v", c.why, d)
				}
				got = append(got, text)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s: findings (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestAnotherKindOfFile(t *testing.T) {
	if s, diags := simulate.Load("m.yaml", []byte("apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmachine: m\nscript: []\n")); s != nil || !strings.Contains(diags.Err().Error(), `kind "Machine"`) {
		t.Errorf("got %v", diags)
	}
}

// Each step that fails says what was expected and what was, and ends the script.
func TestStepsThatFail(t *testing.T) {
	m := machine(t, "  status: {where: phase.name, loose: 'held.size()', seen: result.n}\n"+named)
	for name, c := range map[string]struct{ why, script, want string }{
		"status":       {"what the file shows is seen with each write of the view", "- until: {status: {where: Two, loose: 0, seen: null}, within: 5m}\n", "5:10: expected within 5m0s: status.loose 0, got 2; status.seen null, got 0; status.where Two, got One"},
		"status is so": {"nothing of it fails", "- expect: {status: {where: One, loose: 2}}\n- expect: {phase: Two}\n", "6:11: expected: phase Two"},
		"until":        {"with the time it had", "- until: {phase: Two, within: 5m}\n", "5:10: expected within 5m0s: phase Two, got One"},
		"all that differ": {"one look at the failure is enough", "- expect: {phase: Two, held: [], reason: Done, gone: true, conditions: {Ready: true}, path: [Two], message: mm, step: x, inPlace: []}\n",
			`5:11: expected: phase Two, got One; step x, got Look; message with "mm", got "Waiting in step Look until result.n == 2"; reason Done, got One, WithinDeadline; condition Ready=true, got false; held [], got [volume job]; in place [], got [job volume]; path [Two], got [One]; gone true, got false`},
		"after the end":   {"there is no object any more", "- delete: true\n- until: {gone: true}\n- annotate: {a: b}\n", "7:3: the object is gone"},
		"no such crash":   {"a crash that never comes tests nothing", "- until: {phase: One}\n- crash: {after: RemoveJob}\n- advance: 1m\n", "7:3: the crash after RemoveJob before this step never came"},
		"crash at a step": {"the first one came, by the name of the step", "- crash: {after: One/Look}\n- advance: 1m\n- crash: {after: RemoveJob}\n- advance: 1m\n", "8:3: the crash after RemoveJob before this step never came"},
		"stops there":     {"what follows makes no sense", "- expect: {phase: Two}\n- expect: {phase: Out}\n", "5:11: expected: phase Two, got One"},
		"never at rest":   {"a run has an end", "- until: {phase: One}\n- advance: 100000h\n", "6:3: the run is longer than 20000 looks or 10 years: it is in phase One"},
		"set after gone":  {"nor this", "- delete: true\n- until: {gone: true}\n- delete: true\n", "7:3: the object is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, diags := simulate.Load("s.yaml", []byte(scenarioHead+"script:\n"+c.script))
			if s == nil {
				t.Fatal(diags.Err())
			}
			result, diags := s.Play(m)
			if result == nil {
				t.Fatal(diags.Err())
			}
			var got []string
			for _, f := range result.Failures {
				got = append(got, strings.TrimPrefix(f.String(), "s.yaml:"))
			}
			if text := strings.Join(got, "\n"); !strings.HasPrefix(text, c.want) || len(got) != 1 {
				t.Errorf("%s: got %q, want %q", c.why, text, c.want)
			}
		})
	}
}

func TestScenariosAreRepeatable(t *testing.T) {
	m := machine(t, named)
	s, diags := simulate.Load("s.yaml", []byte(scenarioHead+"given: {actions: {Look: [{outputs: {n: 1}}, {outputs: {n: 2}}]}}\nscript:\n- until: {phase: Two}\n"))
	if s == nil {
		t.Fatal(diags.Err())
	}
	first, _ := s.Play(m)
	second, _ := s.Play(m)
	if d := cmp.Diff(first.Transcript, second.Transcript, cmp.AllowUnexported(simulate.Block{})); d != "" || len(first.Failures) > 0 {
		t.Errorf("failures %v; the second time is another (-first +second):\n%s", first.Failures, d)
	}
}

// A step has an answer of its own, by its name or with its phase; the answers of its action are for all others.
func TestStepsAreGivenByTheirNames(t *testing.T) {
	m := machine(t, strings.Replace(named, "poll: 10s}]\n", "poll: 10s}, {name: Again, action: Look, until: 'result.n == 3'}]\n", 1))
	const look, again = "Look: [{outputs: {n: 2}}]", "[{outputs: {n: 4}}, {outputs: {n: 3}}]"
	cases := map[string]struct{ why, given, at string }{
		"by action alone":    {"both steps get it, and the second waits", look, "One"},
		"by step":            {"the second has its own", look + ", Again: " + again, "Two"},
		"by phase and step":  {"more exact still", look + ", One/Again: " + again + ", Again: [{outputs: {n: 5}}]", "Two"},
		"of a step unnamed":  {"it is called as its action", "One/Look: [{outputs: {n: 2}}], Look: [{outputs: {n: 3}}]", "Two"},
		"of another's phase": {"used up, what the action answers follows", "One/Look: [{outputs: {n: 2}, times: 1}], Look: [{outputs: {n: 2}}]", "One"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, diags := simulate.Load("s.yaml", []byte(scenarioHead+"given: {actions: {"+c.given+"}}\nscript:\n- advance: 5m\n- expect: {phase: "+c.at+"}\n"))
			if s == nil {
				t.Fatal(diags.Err())
			}
			result, diags := s.Play(m)
			if result == nil || len(result.Failures) > 0 {
				t.Errorf("%s: %v %+v", c.why, diags, result)
			}
		})
	}
}

// A crash that changes the end says in what, in which phase it came, and which step of the script fails then.
func TestCrashesSayWhatFails(t *testing.T) {
	m := machine(t, strings.Replace(named, "  - {name: Two,", "    timeout: {after: 1m, to: Late}\n  - {name: Late, steps: [{undo: held}], next: [{to: Failed}], onDelete: {to: Out}}\n  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n  - {name: Two,", 1))
	s, diags := simulate.Load("s.yaml", []byte(scenarioHead+"given: {actions: {Look: [{outputs: {n: 1}, takes: 35s, times: 1}, {outputs: {n: 2}}]}}\nscript:\n- until: {phase: Two, within: 70s}\n"))
	if s == nil {
		t.Fatal(diags.Err())
	}
	var got []string
	_, failures := s.Crashed(m, nil)
	for _, f := range failures {
		got = append(got, f.String())
	}
	const end = "changes the end: phase One, without the crash Two; path [One], without the crash [One Two]; held [volume job], without the crash [job]; and then expected within 1m10s: phase Two, got One"
	want := []string{"s.yaml:6:10: a crash after RunAction Look in phase One " + end, "s.yaml:6:10: a crash before Requeue in phase One " + end}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestFromNow(t *testing.T) {
	w := fsmtest.World(t, machine(t, strings.Replace(named, "  - {name: Two,", "    timeout: {after: 1m, stalled: Late}\n  - {name: Two,", 1)), nil)
	w.Give("Look", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": 1}}})
	for _, c := range []struct {
		run  time.Duration
		want string
	}{{10 * time.Second, "deadline in 50s"}, {time.Hour - 10*time.Second, "deadline 59m0s ago"}} {
		if err := w.Run(c.run, nil); err != nil {
			t.Fatal(err)
		}
		if text := w.Describe(); !strings.Contains(text, c.want) {
			t.Errorf("want %q in\n%s", c.want, text)
		}
	}
}

// A number of a scenario is that which an API server would store.
func TestNumbersOfScenarios(t *testing.T) {
	s, diags := simulate.Load("s.yaml", []byte(scenarioHead+"object: {spec: {a: 9007199254740993, b: 2.0, c: 2.5}}\nscript: []\n"))
	if s == nil {
		t.Fatal(diags.Err())
	}
	w, err := simulate.New(machine(t, named), s.Object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"a": int64(9007199254740993), "b": int64(2), "c": 2.5}, w.Self()["spec"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
