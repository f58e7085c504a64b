package describe_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/show/describe"
)

var update = flag.Bool("update", false, "write the stories under testdata anew")

var known = program.Bindings{
	Actions: map[string]program.ActionSpec{
		"Look":   {Doc: "Looks around.", Outputs: map[string]expr.Type{"price": expr.TypeInt}},
		"Take":   {Doc: "Takes a thing.", Params: map[string]program.Param{"what": {Type: expr.TypeString}, "where": {Type: expr.TypeString}}},
		"Give":   {Doc: "Puts a thing back.", Params: map[string]program.Param{"what": {Type: expr.TypeString}}},
		"Pay":    {Doc: "Pays."},
		"Refund": {Doc: "Gets the money back."},
	},
	Guards: map[string]string{"home": "Somebody is at home."},
}

func errand(t *testing.T) *describe.Describer {
	t.Helper()
	path := filepath.Join("testdata", "errand.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	def, diags := program.Load(path, data)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	m, diags := fsm.Bind(def, known)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return describe.New(m)
}

func phase(t *testing.T, name string) *describe.Phase {
	t.Helper()
	p, err := errand(t).Phase(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTexts(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	live := phase(t, "Asked")
	live.Live = &describe.Live{Object: "shop/errand", Status: v1alpha1.MachineStatus{
		Phase: "Asked", Revision: "sha256:0123456789abcdef", EnteredAt: &at, Deadline: &at, Held: v1alpha1.Held("key"), OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate},
		Blocked: []v1alpha1.Blocked{
			{Step: "AwaitYes", Guard: "request.approve.pending", Value: "request.approve.pending = false"},
			{To: "Away", Guard: "guards.home"},
		},
	}}
	cases := map[string]struct{ why, got, file string }{
		"Live":     {why: "an object that waits, and what was seen", got: live.Text(), file: "live.txt"},
		"Working":  {why: "steps of every kind, effects and every kind of exit", got: phase(t, "Away").Text(), file: "away.txt"},
		"Held":     {why: "a deletion that waits, and the way after it", got: phase(t, "Home").Text(), file: "home.txt"},
		"Terminal": {why: "requests with and without an annotation, and what is kept", got: phase(t, "Done").Text(), file: "done.txt"},
		"Page":     {why: "all of it as documentation", got: errand(t).Page(), file: "page.md"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", tc.file)
			if *update {
				if err := os.WriteFile(path, []byte(tc.got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), tc.got); diff != "" {
				t.Errorf("%s: %s differs (-want +got; go test -update writes it anew):\n%s", tc.why, path, diff)
			}
		})
	}
}

func TestWorstTime(t *testing.T) {
	cases := map[string]struct {
		why, phase string
		want       describe.Worst
	}{
		"Sum":    {why: "a timeout may lead on to a phase with another", phase: "Asked", want: describe.Worst{Bound: "25h40m", Path: []string{"Asked", "Away", "Home", "Done"}}},
		"Rest":   {why: "nobody waits for a phase that is left on request only", phase: "Done", want: describe.Worst{Bound: "0s", Path: []string{"Done"}}},
		"Delete": {why: "releasing is tried without end", phase: "Out", want: describe.Worst{Unbounded: []string{"Out has no timeout"}}},
		"Endless": {why: "a timeout that only sets Stalled, none at all, and a circle", phase: "Circle", want: describe.Worst{
			Unbounded: []string{"the timeout of Circle only sets Stalled (Slow) and has no target", "Circle and Circle2 can lead to each other", "Circle2 has no timeout"},
			Timeouts:  []string{"Circle 1h"},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, phase(t, tc.phase).Worst); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	both := []string{"key", "bill"}
	cases := map[string]struct {
		why, phase string
		want       describe.Held
	}{
		"Before":  {why: "nothing was taken yet", phase: "Asked"},
		"Taking":  {why: "both are taken here", phase: "Away", want: describe.Held{Here: both}},
		"Undoing": {why: "an error may come after any step", phase: "Home", want: describe.Held{Entry: both, Here: both}},
		"Kept":    {why: "what is kept has left the ledger on entry", phase: "Done", want: describe.Held{Entry: []string{"key"}, Here: []string{"key"}, Keeps: []string{"bill"}}},
		"Failed":  {why: "a deadline passes while things are released: the rest stays for good", phase: "Refused", want: describe.Held{Keeps: both}},
		"Deleted": {why: "all was released", phase: "End"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, phase(t, tc.phase).Held); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestDeletion(t *testing.T) {
	cases := map[string]struct {
		why, phase string
		want       []string
	}{
		"AtOnce":  {why: "the object is gone without a way", phase: "Asked"},
		"Through": {why: "a deletion may pass through phases that are none of a deletion", phase: "Away", want: []string{"Home", "Done", "Out", "End"}},
		"Held":    {why: "a phase that holds goes on by its exits, not by its timeout", phase: "Home", want: []string{"Done", "Out", "End"}},
		"Direct":  {why: "the usual one", phase: "Done", want: []string{"Out", "End"}},
		"On":      {why: "a deletion that is under way", phase: "Out", want: []string{"End"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, hop := range phase(t, tc.phase).Deletion.Path {
				got = append(got, hop.Phase)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestUnknownPhase(t *testing.T) {
	want := `machine errand has no phase "Nowhere"; it has: Asked, Away, Home, Circle, Circle2, Done, Refused, Out, End`
	if _, err := errand(t).Phase("Nowhere"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJSON(t *testing.T) {
	data, err := json.Marshal(phase(t, "Out"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "revision")
	want := map[string]any{
		"machine": "errand", "phase": "Out", "traits": []any{"deletion"},
		"steps":      []any{map[string]any{"name": "undo", "does": "Releases what is held, newest first: key."}},
		"afterError": "after an error: again in 1s, then 2 times as long, at most 5m, without end",
		"exits": []any{
			map[string]any{"to": "End", "kind": "next", "words": "always"},
		},
		"deletion": map[string]any{"words": "It is one already; the phases below follow.",
			"path": []any{map[string]any{"phase": "End", "does": []any{"the object is gone"}}}},
		"held":  map[string]any{"entry": []any{"key"}, "here": []any{"key"}},
		"worst": map[string]any{"unbounded": []any{"Out has no timeout"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
