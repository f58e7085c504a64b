package fsm_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/show/describe"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const (
	makes       = `{name: Acquire, use: Make, with: {manifest: {kind: A, metadata: {name: '${self.spec.name}'}}}}`
	makesByItem = `{name: Acquire, use: Make, with: {manifest: {kind: A, metadata: {name: '${item}'}}}}`
)

// What releases an effect is on record before it is acquired, also where the file does not say it: an edit leads nowhere else.
func TestInverseIsOnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		why, file string
		crash     bool
		want      []string
	}{
		"made of the acquire": {why: "with what its expressions came to", file: fsm.Making(makes, `{action: Acquire}`),
			want: []string{`thing → Unmake {"kind":"A","name":"first"} ← {"manifest":{"kind":"A","metadata":{"name":"first"}}}`, `Make first`, `Unmake {"kind":"A","name":"first"}`}},
		"a crash before the deed": {why: "nothing was made, and the ledger says what is released", file: fsm.Making(makes, `{action: Acquire}`), crash: true,
			want: []string{`thing → Unmake {"kind":"A","name":"first"} ← {"manifest":{"kind":"A","metadata":{"name":"first"}}}`, `Unmake {"kind":"A","name":"first"}`}},
		"one for each item": {why: "each is of its own item, the newest first", file: fsm.Making(makesByItem, `{action: Acquire, forEach: {in: '["x", "y"]', parallel: 2}}`),
			want: []string{
				`thing[x] → Unmake {"kind":"A","name":"x"} ← {"manifest":{"kind":"A","metadata":{"name":"x"}}}`,
				`thing[y] → Unmake {"kind":"A","name":"y"} ← {"manifest":{"kind":"A","metadata":{"name":"y"}}}`,
				`Make x`, `Make y`, `Unmake {"kind":"A","name":"y"}`, `Unmake {"kind":"A","name":"x"}`}},
		"the file names another": {why: "that counts", file: strings.Replace(fsm.Making(makes, `{action: Acquire}`), "acquire: Acquire}", "acquire: Acquire, release: Unset}", 1),
			want: []string{`thing → Unset ← {"manifest":{"kind":"A","metadata":{"name":"first"}}}`, `Make first`, `Unset null`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, machineOf(t, "test.yaml", []byte(c.file), fsm.MakeBindings()), map[string]any{"name": "first"})
			w.GiveGuard("a", simulate.GuardAnswer{})
			var got []string
			w.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
				text := cmd.Action
				if manifest, is := cmd.With["manifest"].(map[string]any); is {
					text += " " + manifest["metadata"].(map[string]any)["name"].(string)
				} else {
					with, err := json.Marshal(cmd.With)
					if err != nil {
						t.Error(err)
					}
					text += " " + string(with)
				}
				got = append(got, text)
				return simulate.Answer{}, true
			}
			if c.crash {
				w.Interrupt = func(cmd fsm.Decision, _ bool) bool { return cmd.Do == fsm.RunAction }
				_ = w.Run(time.Minute, func() bool { return w.Stored.IsHeld("thing") })
				_, _ = w.Reconcile()
				w.Interrupt = nil
			} else {
				w.settle()
			}
			for i := range w.Stored.Held {
				got = append(got[:i:i], append([]string{w.Stored.Held[i].String()}, got[i:]...)...)
			}
			w.set("spec.name", "second")
			w.Delete()
			w.settle()
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestInverseIsShownAndProved(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(fsm.Making(makes, `{action: Acquire}`)), fsm.MakeBindings())
	if _, diags := prove.Prove(m, prove.Options{}); len(diags) > 0 {
		t.Errorf("it holds: %v", diags)
	}
	const want = "thing: acquired by Acquire, released by Unmake with kind: A, name: ${self.spec.name}"
	if text := describe.New(m).Machine().Text(); !strings.Contains(text, want) {
		t.Errorf("explain shows what no line of the file says:\n%s", text)
	}
	var calls []fsm.Call
	for _, call := range m.Calls() {
		if call.Action == "Unmake" {
			calls = append(calls, fsm.Call{Action: call.Action, By: call.By, With: call.With})
		}
	}
	want2 := []fsm.Call{{Action: "Unmake", By: "Unmake", With: fsm.Params{"kind": "A", "name": "${self.spec.name}"}}}
	if d := cmp.Diff(want2, calls, cmp.AllowUnexported(fsm.Call{})); d != "" {
		t.Errorf("the rights that the manager needs follow from it (-want +got):\n%s", d)
	}

	if unused := fsm.MakeBindings().Unused(m.Definition()); cmp.Diff([]string{"Nod", "Set", "Unset"}, unused) != "" {
		t.Errorf("unused are %v", unused)
	}
}
