package fsm

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// held is a machine whose phase One takes the lock, and then has some more in it;
// Back releases it and leads to Done.
func held(more string) string {
	return phases("  - name: One\n    timeout: {after: 1h, to: Back}\n    onDelete: {to: Out}\n    steps:\n    - {action: Take}\n" + more + back + rest)
}

// out is rest without Done.
var out = rest[strings.Index(rest, "\n")+1:]

const back = "  - {name: Back, steps: [{undo: held}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n"

// serving is a phase that holds the lock while all is well, one that leads to it when time is up, and where that begins.
const serving = "  - {name: Trying, poll: 5s, next: [{to: Back, when: 'guards.a'}], timeout: {after: 5m, to: Cleaning}, onDelete: {to: Out}}\n" +
	"  - {name: Cleaning, steps: [{action: Work}], next: [{to: Serving}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n" +
	"  - {name: Serving, kind: steady, poll: 5s, onDelete: {to: Out}}\n"

func TestWhatIsHeld(t *testing.T) {
	const toBack = "    next: [{to: Back}]\n"
	for name, c := range map[string]badFile{
		"released by a step": {
			why: "the release action is as good as an undo", code: "PG011",
			bad:      phases("  - {name: One, steps: [{action: Take}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n" + out),
			good:     phases("  - {name: One, steps: [{action: Take}, {action: Give}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n" + out),
			contains: []string{"End is entered while lock may be held"},
		},
		"release that may be left out": {
			why: "with another condition it may be skipped while the lock is held", code: "PG011",
			bad:  held("    - {action: Give, if: 'guards.a'}\n    next: [{to: Failed, when: 'guards.b'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: held("    - {action: Give, if: '\"lock\" in held'}\n    next: [{to: Failed, when: 'guards.b'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
		},
		"undo while something is held": {
			why: "size says the same as a name", code: "PG011",
			bad:  held("    - {undo: held, if: 'guards.a || held.size() > 5'}\n    next: [{to: Failed, when: 'guards.b'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: held("    - {undo: held, if: 'held.size() > 0'}\n    next: [{to: Failed, when: 'guards.b'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
		},
		"exit that is closed while it is held": {
			why: "what the guard excludes does not travel on", code: "PG011",
			bad:  held("    next: [{to: Failed, when: 'guards.a'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: held("    next: [{to: Failed, when: 'guards.a && !(\"lock\" in held)'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
		},
		"the same behind a variable": {
			why: "a name for a condition changes nothing", code: "PG011",
			bad:  strings.Replace(held("    next: [{to: Failed, when: 'variables.free'}, {to: Back}]\n"), "  phases:", "  variables: [{name: free, expr: 'guards.a'}]\n  phases:", 1) + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: strings.Replace(held("    next: [{to: Failed, when: 'variables.free'}, {to: Back}]\n"), "  phases:", "  variables: [{name: free, expr: 'size(held) == 0'}]\n  phases:", 1) + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
		},
		"kept": {
			why: "what is kept is nobody's to release", code: "PG011",
			bad:  held("    next: [{to: Failed, when: 'guards.a'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: held("    next: [{to: Failed, when: 'guards.a'}, {to: Back}]\n") + "  - {name: Failed, terminal: failure, keeps: [lock], onDelete: {to: Out}}\n",
		},
		"let go by a deletion": {
			why: "the finalizer goes at once, the lock stays", code: "PG011",
			bad:  strings.Replace(held(toBack), "onDelete: {to: Out}", "onDelete: {immediate: true}", 1),
			good: held(toBack), contains: []string{"a deletion lets the object go while lock may be held"},
		},
		"released and never taken": {
			why: "acquire and release are exchanged", code: "PG011",
			bad: strings.Replace(held(toBack), "acquire: Take, release: Give", "acquire: Give, release: Take", 1), good: held(toBack),
			contains: []string{"Take releases lock, which is not held here on any way"},
		},
		"released on another round": {
			why: "with its exits closed a phase begins again, and holds what it took", code: "PG011",
			good: phases("  - {name: One, poll: 5s, steps: [{action: Give}, {action: Take}], next: [{to: Back, when: 'guards.a'}], timeout: {after: 1h, to: Back}, onDelete: {to: Out}}\n" + back + rest),
			bad:  phases("  - {name: One, poll: 5s, steps: [{action: Give}], next: [{to: Two, when: 'guards.a'}], timeout: {after: 1h, to: Two}, onDelete: {to: Out}}\n  - {name: Two, steps: [{action: Take}], next: [{to: Back}], timeout: {after: 1h, to: Back}, onDelete: {to: Out}}\n" + back + rest),
		},
		"held while the object lives": {
			why: "a deletion releases it", code: "PG011",
			good: held("    next: [{to: Here}]\n") + "  - {name: Here, kind: steady, poll: 5s, next: [{to: Back, when: 'guards.a'}], onDelete: {to: Out}}\n",
			bad:  held("    next: [{to: Here}]\n") + "  - {name: Here, kind: steady, poll: 5s, next: [{to: Back, when: 'guards.a'}], onDelete: {immediate: true}}\n",
		},
		"requirement": {
			why: "asked only while nothing is held", code: "PG011",
			good: strings.Replace(held("    next: [{to: Back, when: 'guards.a'}]\n    poll: 5s\n"), "    onDelete", "    require: [{when: 'guards.b', else: Failed}]\n    onDelete", 1) + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			bad:  held("    next: [{to: Back, when: 'guards.a'}, {to: Failed}]\n    poll: 5s\n") + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
		},
		"giving up to where only a deletion helps": {
			why: "nobody deletes what seems to wait for something", code: "PG013",
			bad:  held(toBack+"    retry: {attempts: 3, to: Parked}\n") + "  - {name: Parked, kind: waiting, poll: 5s, next: [{to: Done, when: 'guards.a'}], onDelete: {to: Out}}\n",
			good: held(toBack+"    retry: {attempts: 3, to: Parked}\n") + "  - {name: Parked, kind: waiting, poll: 5s, next: [{to: Back, when: 'guards.a'}], onDelete: {to: Out}}\n",
		},
		"a deadline that leads on to where it is meant to be held": {
			why: "an exit to the same phase is no finding; from where nothing but an accident leads, nobody meant it to be held", code: "PG013",
			bad:  held("    next: [{to: Trying, when: 'guards.a'}]\n    poll: 5s\n") + serving,
			good: held("    next: [{to: Serving, when: 'guards.a'}, {to: Trying, when: 'guards.b'}]\n    poll: 5s\n") + serving,
		},
		"step's own retry": {
			why: "it leads somewhere else than the phase's", code: "PG013",
			bad:  held("    - {action: Work, retry: {attempts: 3, to: Failed}}\n"+toBack) + "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n",
			good: held("    - {action: Work, retry: {attempts: 3, to: Back}}\n" + toBack),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.checkCode(t)
		})
	}
}

// checkCode is for findings whose place other tests look at.
func (c badFile) checkCode(t *testing.T) {
	t.Helper()
	c.bindings = testBindings
	for _, d := range c.findings(c.good) {
		t.Errorf("%s: the good file: %v", c.why, d)
	}
	found := c.findings(c.bad)
	if len(found) != 1 || found[0].Code != c.code || found[0].Fix == "" || c.contains != nil && !strings.Contains(found[0].Message, c.contains[0]) {
		t.Errorf("%s: the bad file: want one %s %q, got %v", c.why, c.code, c.contains, found)
	}
}

func TestTheWayIsShown(t *testing.T) {
	file := held("    next: [{to: Two}]\n") + "  - {name: Two, next: [{to: Failed}], onDelete: {to: Out}}\n  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n"
	diags := badFile{bindings: testBindings}.findings(file)
	if len(diags) != 1 {
		t.Fatal(diags)
	}
	want := []string{"One: step Take takes lock", "One → Two (next)", "Two → Failed (next)"}
	if d := cmp.Diff(want, diags[0].Trace); d != "" {
		t.Errorf("from where it is taken to where it is lost (-want +got):\n%s", d)
	}
}

func TestNoReturn(t *testing.T) {
	// through leads from One, which takes the lock, through a point of no return.
	through := func(point string) string {
		return held("    next: [{to: Point}]\n") + "  - {name: Point, pointOfNoReturn: true, timeout: {after: 1h, stalled: Slow}, " + point + "}\n"
	}
	const undoing = "  - {name: Undoing, steps: [{action: Give}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {hold: 'goes on'}}\n"
	for name, c := range map[string]badFile{
		"deletion": {why: "a deletion is a way back too", code: "PG012",
			bad:  through("steps: [{action: Give}], next: [{to: Done}], onDelete: {to: Out}"),
			good: through("steps: [{action: Give}], next: [{to: Done}], onDelete: {hold: 'goes on'}"), contains: []string{"step undo of Out releases lock"}},
		"kept": {why: "nobody releases what has left the ledger", code: "PG012",
			bad:  through("next: [{to: Done}], onDelete: {to: Out}"),
			good: through("keeps: [lock], next: [{to: Done}], onDelete: {to: Out}")},
		"kept and released by name": {why: "a release step does not ask the ledger", code: "PG012",
			bad:  through("keeps: [lock], steps: [{action: Give}], next: [{to: Done}], onDelete: {hold: 'goes on'}"),
			good: through("keeps: [lock], next: [{to: Done}], onDelete: {hold: 'goes on'}")},
		"back to a phase from before": {why: "a phase that is also a way back from before is no way on", code: "PG012",
			bad:  strings.Replace(through("next: [{to: Undoing}], onDelete: {hold: 'goes on'}")+undoing, "next: [{to: Point}]", "next: [{to: Undoing, when: 'guards.a'}, {to: Point}]", 1),
			good: through("next: [{to: Undoing}], onDelete: {hold: 'goes on'}") + undoing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.checkCode(t)
		})
	}
}

func TestGuardsOfOnePhase(t *testing.T) {
	// exits of a phase that looks at a number; what is behind them does not matter.
	exits := func(guards ...string) string {
		var b strings.Builder
		b.WriteString("    poll: 5s\n    timeout: {after: 1h, to: Done}\n    steps: [{action: Look}]\n    next:\n")
		for _, g := range guards {
			b.WriteString("    - {to: Done, when: '" + g + "'}\n")
		}
		return one(b.String())
	}
	for name, c := range map[string]struct {
		why    string
		guards []string
		code   string // of the last exit; none: no finding
	}{
		"apart":                       {why: "an exit for each side", guards: []string{"result.n < 3", "result.n >= 3"}},
		"different constants":         {why: "one thing has one value", guards: []string{"result.n == 1", "result.n == 2"}},
		"different texts":             {why: "of texts too", guards: []string{`self.spec.mode == "a"`, `self.spec.mode == "b"`, `self.spec.mode != "a" && self.spec.mode != "b"`}},
		"negation":                    {why: "one or the other", guards: []string{"guards.a", "!guards.a"}},
		"special case first":          {why: "the usual way to write it", guards: []string{"result.n > 10", "result.n > 5", "result.n > 0"}},
		"whole numbers":               {why: "nothing is between 3 and 4", guards: []string{"result.n > 3", "result.n < 4"}},
		"counts":                      {why: "nothing is below 0", guards: []string{"result.n < 1", "result.n != 0"}},
		"two things":                  {why: "they may well be both true: then the order decides", guards: []string{"guards.a", "guards.b", "result.n > 3"}},
		"nothing of it is understood": {why: "no guess", guards: []string{"result.list.exists(x, x == self.spec.x)", "result.list.all(x, x == self.spec.x)"}},
		"two kinds of constants":      {why: "no guess", guards: []string{"self.spec.x == 1", `self.spec.x == "1"`}},
		"constant":                    {why: "a switch that is off on purpose", guards: []string{"false", "guards.a"}},

		"boundary twice":           {why: "3 is on both sides", guards: []string{"result.n <= 3", "result.n >= 3"}, code: "PG102"},
		"boundary of a fraction":   {why: "the author thinks of fractions", guards: []string{"result.n <= 2.5", "result.n > 2.0"}, code: "PG102"},
		"the other way round":      {why: "3 <= n is n >= 3", guards: []string{"result.n <= 3", "3 <= result.n"}, code: "PG102"},
		"texts that are not apart": {why: "c is neither", guards: []string{`self.spec.mode != "a"`, `self.spec.mode != "b"`}, code: "PG102"},

		"narrower one last":       {why: "above 5 is above 0", guards: []string{"result.n > 0", "result.n > 5"}, code: "PG004"},
		"more of the same":        {why: "a && b is a", guards: []string{"guards.a", "guards.b && guards.a"}, code: "PG004"},
		"one of two":              {why: "a is a || b", guards: []string{"guards.a || guards.b", "guards.b && result.n > 3 && guards.a"}, code: "PG004"},
		"both sides before":       {why: "nothing is left for the third", guards: []string{"result.n < 3", "result.n >= 3", "result.n == 7"}, code: "PG004"},
		"contradiction":           {why: "no number is both", guards: []string{"result.n > 5 && result.n < 3"}, code: "PG004"},
		"conditional":             {why: "b is true whenever a is", guards: []string{"guards.a ? guards.b : false", "guards.a && guards.b"}, code: "PG004"},
		"reads less than the one": {why: "where b fails, a alone is still taken", guards: []string{"guards.a && guards.b || guards.a && !guards.b", "guards.a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got []string
			if c.code != "" {
				want = []string{c.code}
			}
			for _, d := range load(exits(c.guards...), testBindings) {
				if d.Code != "PG101" {
					t.Log(d)
					got = append(got, d.Code)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]badFile{
		"hot loop by an error that is caught at once": {
			why: "no backoff in between", code: "PG103",
			bad:  one("    steps: [{action: Work}]\n    onError: [{is: Terminal, to: Two}]\n"+toDone) + "  - {name: Two, next: [{to: One}], onDelete: {to: Out}}\n",
			good: one("    steps: [{action: Work}]\n    onError: [{is: Terminal, to: Two}]\n"+toDone) + "  - {name: Two, steps: [{wait: 5s}], next: [{to: One}], onDelete: {to: Out}}\n",
		},
		"hot loop by retries": {
			why: "attempts are a pause: each is later than the one before", code: "PG103",
			bad:  one("    steps: [{action: Work}]\n    onError: [{is: Timeout, to: Two}]\n"+toDone) + "  - {name: Two, next: [{to: One}], onDelete: {to: Out}}\n",
			good: one("    steps: [{action: Work}]\n    retry: {attempts: 3}\n    onError: [{is: Timeout, to: Two}]\n"+toDone) + "  - {name: Two, next: [{to: One}], onDelete: {to: Out}}\n",
		},
		"no timeout": {
			why: "a waiting phase waits for somebody, however long it takes", code: "PG101",
			bad:  strings.ReplaceAll(one("    poll: 5s\n    steps: [{action: Work}]\n"+toDone), "{undo: held}], next: [{to: End}]", "{undo: held}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}"),
			good: strings.ReplaceAll(one("    poll: 5s\n    kind: waiting\n    steps: [{action: Work}]\n"+toDone), "{undo: held}], next: [{to: End}]", "{undo: held}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.checkCode(t)
		})
	}
}

func TestIgnoreComments(t *testing.T) {
	const (
		end  = "  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"
		body = "    steps: [{action: Work}]\n    next: [{to: Done}]\n    onDelete: {immediate: true}\n" + end
	)
	for name, c := range map[string]struct {
		why, phase string
		want       []string
	}{
		"none":           {why: "the warning that the others ignore", phase: "  - name: One\n" + body, want: []string{"8 PG101"}},
		"on its line":    {why: "with a reason it is answered", phase: "  - name: One # phasegate:ignore PG101 it takes as long as it takes\n" + body},
		"above":          {why: "a comment alone is about the next line", phase: "  # phasegate:ignore PG101 it takes as long as it takes\n  - name: One\n" + body},
		"another line":   {why: "it says nothing about the whole file", phase: "  - name: One\n    # phasegate:ignore PG101 it takes as long as it takes\n" + body, want: []string{"8 PG101", "9 PG000"}},
		"another code":   {why: "only what is named", phase: "  - name: One # phasegate:ignore PG102 it takes as long as it takes\n" + body, want: []string{"8 PG101", "8 PG000"}},
		"no reason":      {why: "who comes later wants to know why", phase: "  - name: One # phasegate:ignore PG101\n" + body, want: []string{"8 PG101", "8 PG000"}},
		"no such code":   {why: "a typo would ignore nothing", phase: "  - name: One # phasegate:ignore PG110 it takes as long as it takes\n" + body, want: []string{"8 PG101", "8 PG000"}},
		"an error":       {why: "what refuses a file cannot be ignored", phase: "  - name: One\n    steps: [{action: Wirk}] # phasegate:ignore PG005 not yet\n    timeout: {after: 1h, to: Done}\n    next: [{to: Done}]\n    onDelete: {immediate: true}\n" + end, want: []string{"9 PG005"}},
		"nothing left":   {why: "a comment that outlives its reason misleads", phase: "  - name: One # phasegate:ignore PG101 slow\n    timeout: {after: 1h, to: Done}\n" + body, want: []string{"8 PG000"}},
		"text with hash": {why: "a value is no comment", phase: "  - name: One\n    timeout: {after: 1h, to: Done}\n    message: 'see#phasegate:ignore PG101'\n" + body},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range load(spec("  phases:\n"+c.phase), testBindings) {
				t.Log(d)
				got = append(got, strings.Split(d.String(), ":")[1]+" "+d.Code)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestAgainstAnOlderRevision(t *testing.T) {
	read := func(phases string) *program.Definition {
		def, diags := program.Load("new.yaml", []byte(spec(phases)))
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		return def
	}
	old := read("  phases:\n  - {name: One, onDelete: {immediate: true}}\n  - {name: Two, onDelete: {immediate: true}}\n  - {name: Three, onDelete: {immediate: true}}\n")
	for name, c := range map[string]struct {
		why, phases string
		want        []string
	}{
		"more phases": {why: "nobody is in a new one", phases: "  phases:\n  - {name: One}\n  - {name: Two}\n  - {name: Three}\n  - {name: Four}\n"},
		"gone":        {why: "each that is gone is named", phases: "  phases:\n  - {name: One}\n", want: []string{"phase Two of new.yaml is gone", "phase Three of new.yaml is gone"}},
		"mapped":      {why: "an entry says where it goes on", phases: "  upgrade: {phaseMap: {Two: One}}\n  phases:\n  - {name: One}\n  - {name: Three}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range read(c.phases).Against(old) {
				message, _, _ := strings.Cut(d.Message, ":")
				if d.Code != "PG104" || d.Line == 0 || d.Fix == "" {
					t.Errorf("%+v", d)
				}
				got = append(got, message)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// A code that is not listed would have no page and no severity; one that nothing
// gives would promise a check that there is not.
func TestCodesAreThoseThatAreGiven(t *testing.T) {
	files := []string{"../controllers/lint/kinds.go"} // what the engine does not know
	for _, dir := range []string{"*.go", "*/*.go", "*/*/*.go"} {
		more, err := filepath.Glob(dir)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	given := map[string]bool{}
	for _, file := range files {
		if file == "machine/diag/codes.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, code := range regexp.MustCompile(`"(PG\d{3})"`).FindAllStringSubmatch(string(ReadFile(t, file)), -1) {
			given[code[1]] = true
		}
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(diag.Codes)), slices.Sorted(maps.Keys(given))); d != "" {
		t.Errorf("codes (-listed +given):\n%s", d)
	}
}
