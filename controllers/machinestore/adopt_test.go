package machinestore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// stands is the state of an object of machine door.
func stands(name, phase string, held ...string) v1alpha1.MachineState {
	state := v1alpha1.MachineState{Spec: v1alpha1.MachineStateSpec{Machine: "door", Object: v1alpha1.ObjectReference{Kind: "Door", Namespace: "house", Name: name}}}
	state.Status.Phase, state.Status.Held = phase, v1alpha1.Held(held...)
	return state
}

func asked(states []v1alpha1.MachineState, err error) Objects {
	return func(_ context.Context, machine string, each func(*v1alpha1.MachineState)) error {
		for i := range states {
			if states[i].Spec.Machine == machine {
				each(&states[i])
			}
		}
		return err
	}
}

func TestObjectsThatCannotGoOn(t *testing.T) {
	renamed := strings.ReplaceAll(door("3s"), "Closed", "Shut")
	mapped := strings.Replace(renamed, "spec:\n", "spec:\n  upgrade: {phaseMap: {Closed: Shut}}\n", 1)
	bolted := strings.NewReplacer("  phases:\n", "  finalizer: a.b/c\n  effects: [{name: bolt, acquire: Knock, release: Pull}]\n  phases:\n", "{immediate: true}", "{to: Out}").Replace(door("2s")) +
		"  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}]}\n  - {name: End, deletion: true, end: true}\n"
	const fix = "or change the file once the objects have come to an end"
	for name, c := range map[string]struct {
		why    string
		start  string // else door("2s")
		later  files
		states []v1alpha1.MachineState
		want   state
	}{
		"phase that is gone": {why: "the object would be Stalled", later: files{"mine.yaml": renamed}, states: []v1alpha1.MachineState{stands("front", "Closed"), stands("back", "Open")},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"}, Metrics: []string{"refused PG104 mine.yaml 1", "reloads_total door refused 1"}, Refused: map[string]string{
				"door": "mine.yaml:5:3: PG104: Door house/front cannot go on with it: it is in phase Closed, which is not here: restore the phase, or name its successor in spec.upgrade.phaseMap: " + fix}}},
		"many objects": {why: "three are enough to find the others", later: files{"mine.yaml": renamed},
			states: []v1alpha1.MachineState{stands("a", "Closed"), stands("b", "Closed"), stands("c", "Closed"), stands("d", "Closed"), stands("e", "Closed")},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"}, Metrics: []string{"refused PG104 mine.yaml 1", "reloads_total door refused 1"}, Refused: map[string]string{
				"door": "mine.yaml:5:3: PG104: Door house/a, Door house/b, Door house/c and 2 more cannot go on with it: it is in phase Closed, which is not here: restore the phase, or name its successor in spec.upgrade.phaseMap: " + fix}}},
		"mapped":             {why: "the file says where it goes on", later: files{"mine.yaml": mapped}, states: []v1alpha1.MachineState{stands("front", "Closed")}, want: state{InForce: map[string]string{"door": "3s mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}}},
		"nobody is in it":    {why: "the phase is not needed", later: files{"mine.yaml": renamed}, states: []v1alpha1.MachineState{stands("back", "Open")}, want: state{InForce: map[string]string{"door": "3s mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}}},
		"stuck already":      {why: "the machine in force does not help it either", later: files{"mine.yaml": door("3s")}, states: []v1alpha1.MachineState{stands("front", "Ajar")}, want: state{InForce: map[string]string{"door": "3s mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}}},
		"of the compiled-in": {why: "a removed file must not strand it either", start: strings.ReplaceAll(door("2s"), "Closed", "Ajar"), later: files{}, states: []v1alpha1.MachineState{stands("front", "Ajar")}, want: state{InForce: map[string]string{"door": "2s mine.yaml"}, Metrics: []string{"refused PG104 door.yaml 1", "reloads_total door refused 1"}, Refused: map[string]string{"door": "door.yaml:5:3: PG104: Door house/front cannot go on with it: it is in phase Ajar, which is not here: restore the phase, or name its successor in spec.upgrade.phaseMap: " + fix}}},
		"effect that is gone": {why: "nothing would release it", later: files{"mine.yaml": door("3s")}, states: []v1alpha1.MachineState{stands("front", "Closed", "bolt")}, start: bolted, want: state{InForce: map[string]string{"door": "2s mine.yaml"}, Metrics: []string{"refused PG104 mine.yaml 1", "reloads_total door refused 1"}, Refused: map[string]string{
			"door": "mine.yaml:5:3: PG104: Door house/front cannot go on with it: bolt is held, but REVISION of machine door has no such effect: restore it in the machine file, or name its successor in spec.upgrade.effectMap: " + fix}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.start == "" {
				c.start = door("2s")
			}
			files{"mine.yaml": c.start}.write(t, dir)
			o := options(dir)
			o.Objects = asked(c.states, nil)
			o.Bindings = func(*fsm.Definition) (fsm.Bindings, error) {
				return fsm.Bindings{Actions: map[string]fsm.ActionSpec{"Knock": {}, "Pull": {}}}, nil
			}
			s := load(t, o)
			c.later.write(t, dir)
			s.lookTwice(t)
			got := s.state(t, dir)
			for m, note := range got.Refused {
				got.Refused[m] = revision.ReplaceAllString(note, "REVISION")
			}
			if c.want.Refused == nil {
				c.want.Refused = map[string]string{}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestObjectsThatCannotBeAsked(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": door("2s")}.write(t, dir)
	var log []string
	o := options(dir)
	o.Log = funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})
	fault := errors.New("no answer")
	o.Objects = func(ctx context.Context, machine string, each func(*v1alpha1.MachineState)) error {
		return asked(nil, fault)(ctx, machine, each)
	}
	s := load(t, o)
	files{"mine.yaml": door("3s")}.write(t, dir)
	log = nil
	for range 3 {
		s.look(t.Context())
	}
	got := s.state(t, dir)
	if d := cmp.Diff(state{InForce: map[string]string{"door": "2s mine.yaml"}, Refused: map[string]string{}}, got); d != "" {
		t.Errorf("neither taken nor refused (-want +got):\n%s", d)
	}
	if text := strings.Join(log, "\n"); len(log) != 2 || !strings.Contains(text, "no answer") || !strings.Contains(text, "waits") {
		t.Errorf("each look tries again, and says so: %q", log)
	}
	fault = nil
	s.look(t.Context())
	if poll := s.state(t, dir).InForce["door"]; poll != "3s mine.yaml" {
		t.Errorf("it is taken as soon as the objects can be asked: %s", poll)
	}
}

// At the start there is no other machine: the log says which objects are Stalled.
func TestObjectsAtTheStart(t *testing.T) {
	var log []string
	o := options("")
	o.Log = funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})
	o.Objects = asked([]v1alpha1.MachineState{stands("front", "Ajar"), stands("back", "Open")}, nil)
	s := load(t, o)
	log = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if len(log) != 1 || !strings.Contains(log[0], "Door house/front cannot go on with it") || s.Of("door").Refused() != "" {
		t.Errorf("a warning, and no refusal: %q, %q", log, s.Of("door").Refused())
	}
}
