package simulate_test

import (
	"fmt"
	"os"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const kettleFile = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: kettle}
spec:
  for: {apiVersion: example.org/v1, kind: Kettle}
  initial: Heating
  finalizer: example.org/kettle
  effects:
  - {name: power, acquire: SwitchOn, release: SwitchOff}
  phases:
  - name: Heating
    steps:
    - {action: SwitchOn}
    - {action: Measure, until: 'result.degrees >= 100', poll: 30s}
    next:
    - {to: Boiled}
    timeout: {after: 10m, to: Off, reason: NeverBoils}
    onDelete: {to: Off}
  - name: Boiled
    steps: [{undo: held}]
    next: [{to: Off}]
    onDelete: {to: Off}
  - {name: Off, deletion: true, steps: [{undo: held}], next: [{to: Deleted}]}
  - {name: Deleted, deletion: true, end: true}
`

// kettle is a machine bound to the names that a program would have. In a program,
// the bindings are those of its runner.Program.
func kettle() *fsm.Machine {
	def, diags := program.Load("kettle.yaml", []byte(kettleFile))
	if def == nil {
		panic(diags.Err())
	}
	m, diags := fsm.Bind(def, program.Bindings{Actions: map[string]program.ActionSpec{
		"SwitchOn":  {},
		"SwitchOff": {},
		"Measure":   {Outputs: map[string]expr.Type{"degrees": expr.TypeInt}},
	}})
	if m == nil {
		panic(diags.Err())
	}
	return m
}

// A scenario says what actions answer, what happens to the object, and what is
// expected. Its transcript is what there is to compare with.
func ExampleScenario_Play() {
	scenario, diags := simulate.Load("boils.yaml", []byte(`
apiVersion: phasegate.dev/v1alpha1
kind: Scenario
machine: kettle.yaml
given:
  actions:
    Measure:
    - {outputs: {degrees: 20}, times: 3}
    - {outputs: {degrees: 100}}
script:
- until: {phase: Boiled, within: 5m}
- expect: {held: [power]}
- delete: true
- until: {gone: true}
- expect: {inPlace: []}
`))
	if scenario == nil {
		fmt.Println(diags.Err())
		return
	}
	result, diags := scenario.Play(kettle())
	if result == nil {
		fmt.Println(diags.Err())
		return
	}
	result.Write(os.Stdout)
	// Output:
	// boils.yaml: machine kettle
	//
	// until: {phase: Boiled, within: 5m}
	//           0s  commit · → Heating (Created)
	//           0s  AddFinalizer
	//           0s  commit at step 0, held [power]
	//           0s  act SwitchOn
	//               act Measure → {degrees: 20}
	//               sleep 30s
	//          30s  act Measure → {degrees: 20}
	//               sleep 30s
	//               (the same once more, at 1m0s)
	//        1m30s  act Measure → {degrees: 100}
	//               commit Heating → Boiled (Boiled)
	// expect: {held: [power]}
	// delete: true
	// until: {gone: true}
	//        1m30s  commit Boiled → Off (DeletionRequested)
	//        1m30s  act SwitchOff
	//               commit at step 0, held []
	//        1m30s  commit Off → Deleted (Deleted)
	//        1m30s  RemoveFinalizer
	//               gone
	// expect: {inPlace: []}
	//
	// in the end: gone, left in place []
}

// A world is for what a scenario cannot say: here a water model of our own answers
// for the action, so that the machine meets the consequences of what it did.
func ExampleWorld() {
	w, err := simulate.New(kettle(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Respond = func(action string, _ fsm.Decision) (simulate.Answer, bool) {
		if action != "Measure" {
			return simulate.Answer{}, false
		}
		degrees := 20 + int(w.Now().Sub(simulate.Epoch)/time.Second)
		return simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"degrees": degrees}}}, true
	}
	if err := w.Run(time.Hour, w.Gone); err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range w.Stored.History {
		fmt.Println(t.To, t.Reason, t.Took.Duration)
	}
	// Output:
	// Heating Created 0s
	// Boiled Boiled 1m30s
	// Off Off 0s
	// Deleted Deleted 0s
}

// CrashEverywhere kills the driver before and after each command of a story, and
// compares how each ends.
func ExampleCrashEverywhere() {
	machine := kettle()
	begin := func() *simulate.Fake {
		w, err := simulate.New(machine, nil)
		if err != nil {
			panic(err)
		}
		w.Give("Measure", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"degrees": 100}}})
		return w
	}
	crashes, changed := simulate.CrashEverywhere(begin, func(w *simulate.Fake) {
		if err := w.Run(time.Hour, nil); err != nil {
			fmt.Println(err)
		}
		w.Delete()
		if err := w.Run(time.Hour, nil); err != nil {
			fmt.Println(err)
		}
	})
	fmt.Println(crashes, "crashes, changed the end:", len(changed))
	// Output:
	// 28 crashes, changed the end: 0
}
