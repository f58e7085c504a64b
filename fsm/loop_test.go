package fsm_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// fleet sets the image of each app of a list, awaits them, and puts back those that failed.
const fleet = header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  state: {failed: {type: '[]string', initial: []}}
  actions:
  - {name: Upgrade, use: SetImage, with: {name: '${item.name}', image: new}}
  - {name: PutBack, use: SetImage, with: {name: '${item.name}', image: '${item.image}'}}
  effects: [{name: image, acquire: Upgrade, release: PutBack}]
  phases:
  - name: One
    steps:
    - {action: List}
    - {action: Upgrade, forEach: {in: result.items, key: item.name, parallel: 2}}
    - {name: Await, action: Look, forEach: {in: result.items, key: item.name, parallel: 3, toleratedFailures: 1}, with: {name: '${item.name}'}, until: result.ready, poll: 5s}
    next: [{to: Two, when: 'result.failed.size() > 0', set: {failed: result.failed}}, {to: Done, message: '${result.done} are upgraded'}]
    onDelete: {to: Out}
  - {name: Two, steps: [{undo: image, keys: state.failed}], next: [{to: Done}], onDelete: {to: Out}}
  - {name: Done, terminal: success, keeps: [image], onDelete: {to: Out}}
  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}]}
  - {name: End, deletion: true, end: true}
`

func fleetBindings() program.Bindings {
	name := program.Param{Type: expr.TypeString, Required: true}
	return program.Bindings{Actions: map[string]program.ActionSpec{
		"List":     {Outputs: map[string]expr.Type{"items": expr.TypeAny}},
		"SetImage": {Params: map[string]program.Param{"name": name, "image": name}},
		"Look":     {Params: map[string]program.Param{"name": name}, Outputs: map[string]expr.Type{"ready": expr.TypeBool}},
	}}
}

// apps is a world of fleet. What is listed changes once something was upgraded; broken apps are never ready, late ones at
// the second look.
type apps struct {
	*world
	images  map[string]string
	looks   map[string]int
	failing map[string]error
}

func fleetOf(t *testing.T, file string, names ...string) *apps {
	t.Helper()
	a := &apps{world: worldOf(t, machineOf(t, "test.yaml", []byte(file), fleetBindings()), nil), images: map[string]string{}, looks: map[string]int{}, failing: map[string]error{}}
	for _, name := range names {
		a.images[name] = "old-" + name
	}
	a.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
		name, _ := cmd.With["name"].(string)
		switch cmd.Action {
		case "List":
			items := []any{}
			for _, name := range slices.Sorted(maps.Keys(a.images)) {
				items = append(items, map[string]any{"name": name, "image": a.images[name]})
			}
			return answer(map[string]any{"items": items}), true
		case "SetImage":
			a.images[name] = cmd.With["image"].(string)
			return simulate.Answer{}, true
		}
		a.looks[name]++
		if err := a.failing[name]; err != nil {
			return failing(err, program.ClassTerminal), true
		}
		return answer(map[string]any{"ready": a.looks[name] > 1}), true
	}
	return a
}

// A crash at any moment changes neither which apps are upgraded nor what is put back: what is held for an app is what was
// listed before the first of them was touched, though the list is read again.
func TestEachItemOnce(t *testing.T) {
	for at := 0; ; at++ {
		a := fleetOf(t, fleet, "a", "b", "c")
		a.failing["b"] = fsm.Terminal("Broken", "it does not start")
		moments := 0
		a.Interrupt = func(fsm.Decision, bool) bool { moments++; return moments-1 == at }
		_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" && a.Shown.Phase == "Done" })
		if moments <= at {
			if at < 20 {
				t.Errorf("only %d moments to crash at", at)
			}
			break
		}
		want := map[string]string{"a": "new", "b": "old-b", "c": "new"}
		if d := cmp.Diff(want, a.images); a.Stored.Phase != "Done" || d != "" {
			t.Errorf("crash at moment %d: phase %s, images (-want +got):\n%s", at, a.Stored.Phase, d)
		}
	}
}

// A deletion at any moment puts everything back.
func TestItemsArePutBack(t *testing.T) {
	for at := 0; ; at++ {
		a := fleetOf(t, fleet, "a", "b", "c")
		moments, released := 0, false
		a.Interrupt = func(fsm.Decision, bool) bool {
			if moments++; moments-1 == at {
				a.Delete()
			}
			return false
		}
		_ = a.Run(time.Hour, func() bool { return a.Gone() || a.Stored.Phase == "Done" && a.Shown.Phase == "Done" })
		if moments <= at {
			break
		}
		want := map[string]string{"a": "old-a", "b": "old-b", "c": "old-c"}
		if released = a.Gone(); !released { // it was over before
			continue
		}
		if kept := len(a.Stored.History) > 0 && slices.Contains(a.Ending().Path, "Done"); kept {
			want = map[string]string{"a": "new", "b": "new", "c": "new"}
		}
		if d := cmp.Diff(want, a.images); d != "" {
			t.Errorf("deleted at moment %d (-want +got):\n%s", at, d)
		}
	}
}

// What is held for many items is written in few writes, and a status tells how far they are.
func TestProgressOfItems(t *testing.T) {
	a := fleetOf(t, fleet, "a", "b", "c", "d", "e")
	var held []int
	a.Tell = func(e simulate.Event) {
		if text, is := strings.CutPrefix(e.Text, "commit at step 1, held "); is {
			held = append(held, strings.Count(text, "image["))
		}
	}
	if err := a.Run(time.Minute, func() bool { return a.Shown.Message != "" && a.Stored.Loop != nil && a.Stored.StepIndex == 2 }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{2, 4, 5}, held); d != "" {
		t.Errorf("two at a time are put on record (-want +got):\n%s", d)
	}
	if want := "Await: 0 of 5 done, 3 under way"; a.Shown.Message != want {
		t.Errorf("the message is %q, want %q", a.Shown.Message, want)
	}
	_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
	if last := a.Stored.History[len(a.Stored.History)-1]; last.Message != "5 are upgraded" {
		t.Errorf("it ended with %v", last)
	}
}

func TestWhatBecomesOfItems(t *testing.T) {
	for name, c := range map[string]struct {
		why, file string
		apps      []string
		failing   map[string]error
		phase     string
		stalled   string
	}{
		"none":             {why: "there is nothing to do", file: fleet, phase: "Done"},
		"all fail":         {why: "one more than is tolerated fails the step", file: fleet, apps: []string{"a", "b"}, failing: map[string]error{"a": fsm.Terminal("Broken", "no"), "b": fsm.Terminal("Broken", "no")}, phase: "One", stalled: "Broken"},
		"the same key":     {why: "they could not be told apart in the ledger", file: strings.Replace(fleet, "forEach: {in: result.items, key: item.name, parallel: 2}", `forEach: {in: result.items, key: '"same"'}`, 1), apps: []string{"a", "b"}, phase: "One", stalled: "BadItems"},
		"no key":           {why: "an object is no key", file: strings.Replace(fleet, "key: item.name, parallel: 2", "parallel: 2", 1), apps: []string{"a"}, phase: "One", stalled: "BadItems"},
		"none in parallel": {why: "nothing would ever be done", file: strings.Replace(fleet, "parallel: 2", "parallel: 'int(result.items.size()) - 1'", 1), apps: []string{"a"}, phase: "One", stalled: "BadItems"},
	} {
		t.Run(name, func(t *testing.T) {
			a := fleetOf(t, c.file, c.apps...)
			a.failing = c.failing
			_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
			reason := ""
			for _, x := range a.Shown.Conditions {
				if x.Type == fsm.ConditionStalled && x.Status == "True" {
					reason = x.Reason
				}
			}
			if a.Stored.Phase != c.phase || reason != c.stalled {
				t.Errorf("%s: phase %s, stalled %q; want %s, %q: %s", c.why, a.Stored.Phase, reason, c.phase, c.stalled, a.Shown.Message)
			}
		})
	}
}

// What is outside the cluster is asked for one item after another, also where each takes so long that it is stored; what
// waits is asked at its poll.
func TestItemsOutsideTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		why   string
		waits int // the first looks at each
		most  time.Duration
	}{
		"done at once": {why: "nothing keeps the next from being asked", most: 20 * time.Second},
		"at the poll":  {why: "a server is not asked more often", waits: 1, most: 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := fleetBindings()
			look := b.Actions["Look"]
			look.External = true
			b.Actions["Look"] = look
			a := &apps{world: worldOf(t, machineOf(t, "test.yaml", []byte(fleet), b), nil), looks: map[string]int{}}
			var asked []time.Time
			a.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
				switch cmd.Action {
				case "List":
					items := []any{}
					for _, name := range []string{"a", "b", "c", "d", "e"} {
						items = append(items, map[string]any{"name": name, "image": "old"})
					}
					return answer(map[string]any{"items": items}), true
				case "Look":
					asked = append(asked, a.Now())
					a.looks[cmd.Key]++
					said := answer(map[string]any{"ready": a.looks[cmd.Key] > c.waits})
					said.Takes = 2 * time.Second
					return said, true
				}
				return simulate.Answer{}, true
			}
			_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
			if took := a.Now().Sub(asked[0]); took > c.most || len(asked) != 5*(1+c.waits) {
				t.Errorf("%s: %d calls in %s, want at most %s", c.why, len(asked), took, c.most)
			}
		})
	}
}

// A proof tries none, one and two items.
func TestItemsInAProof(t *testing.T) {
	for name, c := range map[string]struct {
		why, file string
		want      []string
	}{
		"as it is": {why: "everything is released or kept", file: fleet},
		"in step":  {why: "an effect is released for each item", file: strings.Replace(fleet, "steps: [{undo: held}]", "steps: [{undo: image}]", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := prove.Prove(machineOf(t, "test.yaml", []byte(c.file), fleetBindings()), prove.Options{})
			var broken []string
			for _, d := range diags {
				broken = append(broken, strings.TrimSuffix(strings.Fields(d.Message)[1], ":"))
			}
			if d := cmp.Diff(c.want, broken); d != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", c.why, d, diags)
			}
		})
	}
}

// The state of many items: what it costs to hold 1,000.
// Fault: a step that a file names as the successor of another one went on with the list of that one.
func TestAListOfAnotherStep(t *testing.T) {
	a := fleetOf(t, fleet, "a", "b", "c")
	for name := range a.images {
		a.failing[name] = fsm.Wait("not yet")
	}
	_ = a.Run(time.Minute, func() bool { return a.Stored.Step == "Await" && a.looks["c"] > 0 })
	before := a.looks["a"]
	file := strings.NewReplacer("  state:", "  upgrade: {stepMap: {Await: Watch}}\n  state:", "name: Await, action: Look, forEach: {in: result.items,", "name: Watch, action: Look, forEach: {in: 'result.items.filter(x, x.name != \"a\")',").Replace(fleet)
	a.Machine = machineOf(t, "test.yaml", []byte(file), fleetBindings())
	a.Wake()
	a.advance(30 * time.Second)
	if a.Stored.Step != "Watch" || a.Stored.Loop == nil || a.Stored.Loop.Total != 2 || a.looks["a"] != before {
		t.Errorf("step %s, loop %+v, a was looked at %d times after the edit; want step Watch with the two items of its own list", a.Stored.Step, a.Stored.Loop, a.looks["a"]-before)
	}
}

func BenchmarkThousandItems(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("app-%04d", i)
	}
	for b.Loop() {
		t := &testing.T{}
		a := fleetOf(t, strings.Replace(fleet, "parallel: 2", "parallel: 100", 1), names...)
		_ = a.Run(time.Hour, func() bool { return len(a.Stored.Held) == 1000 })
	}
}

// An approval that items waited for is used up: the next gate needs one of its own.
func TestItemsUseUpARequest(t *testing.T) {
	file := header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  requests:
  - {name: approve, token: 'self.metadata.?annotations[?"approve"].orValue("")'}
  phases:
  - name: One
    poll: 5s
    steps: [{action: Look, with: {name: '${item}'}, forEach: {in: '["a", "b"]'}, until: 'request.approve.pending'}]
    next: [{to: Two}]
    onDelete: {immediate: true}
  - name: Two
    poll: 5s
    steps: [{action: Look, with: {name: c}, until: 'request.approve.pending'}]
    next: [{to: Done}]
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`
	w := worldOf(t, machineOf(t, "test.yaml", []byte(file), fleetBindings()), nil)
	w.set("metadata.annotations", map[string]any{"approve": "yes"})
	w.advance(time.Minute)
	if w.Stored.Phase != "Two" || len(w.Stored.Requests) != 1 || w.Stored.Requests[0].Token != "yes" {
		t.Errorf("phase %s, requests %v: one approval has opened both gates", w.Stored.Phase, w.Stored.Requests)
	}
}

// Each item has all attempts, also the one after an item that was put aside.
func TestEachItemHasItsAttempts(t *testing.T) {
	file := strings.Replace(fleet, "toleratedFailures: 1}", "toleratedFailures: 3}, retry: {attempts: 3, base: 1s, jitter: 0}", 1)
	a := fleetOf(t, strings.Replace(file, "parallel: 3", "parallel: 1", 1), "a", "b", "c")
	respond := a.Respond
	a.Respond = func(action string, cmd fsm.Decision) (simulate.Answer, bool) {
		if said, is := respond(action, cmd); action != "Look" {
			return said, is
		}
		return failing(errors.New("no"), program.ClassUnavailable), true
	}
	_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
	if d := cmp.Diff(map[string]int{"a": 3, "b": 3, "c": 3}, a.looks); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}
