package v1alpha1_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// thereAndBack is a value's JSON, and what is read from that.
func thereAndBack[T any](t *testing.T, value T) (text any, back T) {
	t.Helper()
	data := []byte(mustJSON(t, value))
	if err := errors.Join(json.Unmarshal(data, &text), json.Unmarshal(data, &back)); err != nil {
		t.Fatalf("not read back: %v: %s", err, data)
	}
	return text, back
}

func TestBlockedIsOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		ways v1alpha1.BlockedWays
		want string
	}{
		"an exit":  {"what closes it, and what was seen", v1alpha1.BlockedWays{{To: "Open", Guard: "request.approve.pending", Value: "request.approve.pending = false"}}, "→ Open: request.approve.pending; seen: request.approve.pending = false"},
		"a step":   {"it waits", v1alpha1.BlockedWays{{Step: "Preflight", Guard: "the step is not done", Value: "fence: missing"}}, "step Preflight: the step is not done; seen: fence: missing"},
		"no value": {"an error has none", v1alpha1.BlockedWays{{Step: "Copy", Guard: "error, attempt 1"}}, "step Copy: error, attempt 1"},
		"no place": {"another program may write it so", v1alpha1.BlockedWays{{Guard: "guards.night", Value: "day"}}, "guards.night; seen: day"},
		"several":  {"two exits", v1alpha1.BlockedWays{{To: "A", Guard: "x || y"}, {To: "B", Guard: "z", Value: "z = 1"}}, "→ A: x || y | → B: z; seen: z = 1"},
	} {
		line, back := thereAndBack(t, c.ways)
		if diff := cmp.Diff(any(c.want), line) + cmp.Diff(any(c.want), c.ways.ToUnstructured()); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
		if diff := cmp.Diff([]v1alpha1.Blocked(c.ways), []v1alpha1.Blocked(back), plain); diff != "" {
			t.Errorf("%s: %s: read back (-want +got):\n%s", name, c.why, diff)
		}
	}
}

// plain compares fields instead of lines.
var plain = cmp.Transformer("fields", func(b v1alpha1.Blocked) [4]string { return [4]string{b.To, b.Step, b.Guard, b.Value} })

func TestBlockedReadsWhatWasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		why, text string
		want      []v1alpha1.Blocked
	}{
		"objects":   {"earlier versions wrote a list", `[{"to":"Open","guard":"x","value":"1"}]`, []v1alpha1.Blocked{{To: "Open", Guard: "x", Value: "1"}}},
		"empty":     {"nothing is closed", `""`, nil},
		"separator": {"a value holds what separates two ways", mustJSON(t, v1alpha1.BlockedWays{{To: "A", Guard: "x", Value: "a | b\nc"}}), []v1alpha1.Blocked{{To: "A", Guard: "x", Value: "a ¦ b c"}}},
	} {
		var got v1alpha1.BlockedWays
		if err := json.Unmarshal([]byte(c.text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, []v1alpha1.Blocked(got), plain); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDeletionIsOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		does v1alpha1.DeletionStatus
		want string
	}{
		"transition": {"where it leads", v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionTransition, To: "Aborting"}, "→ Aborting"},
		"hold":       {"why it waits", v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionHold, Message: "not now: later"}, "hold: not now: later"},
		"immediate":  {"nothing is held", v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate}, "removed at once"},
		"going on":   {"it has begun", v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionInProgress}, "going on"},
		"blocked":    {"a person must act", v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionBlocked, Message: "until its state is recovered"}, "blocked: until its state is recovered"},
	} {
		if line, back := thereAndBack(t, c.does); line != c.want || back != c.does {
			t.Errorf("%s: %s: %q, want %q; read back %#v", name, c.why, line, c.want, back)
		}
	}
	var earlier v1alpha1.DeletionStatus
	if err := json.Unmarshal([]byte(`{"mode":"Transition","to":"Aborting"}`), &earlier); err != nil || earlier.To != "Aborting" {
		t.Errorf("what earlier versions wrote: %#v, %v", earlier, err)
	}
	if err := json.Unmarshal([]byte(`"somehow"`), &earlier); err == nil {
		t.Error("a line of no mode was read")
	}
}
