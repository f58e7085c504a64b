package machinestore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/phasegate/phasegate/fsm"
)

// text is a machine file. The poll is what the cases below change.
func text(name, kind, poll string) string {
	return fmt.Sprintf(`apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: %s}
spec:
  for: {apiVersion: example.org/v1, kind: %s}
  initial: Closed
  phases:
  - name: Closed
    steps:
    - {action: Knock, poll: %s}
    next:
    - {to: Open}
    timeout: {after: 1h, stalled: NobodyHome}
    onDelete: {immediate: true}
  - {name: Open, terminal: success, onDelete: {immediate: true}}
`, name, kind, poll)
}

func door(poll string) string { return text("door", "Door", poll) }
func gate(poll string) string { return text("gate", "Gate", poll) }

// unbound names an action that nobody has.
func unbound(good string) string { return strings.Replace(good, "Knock", "Konck", 1) }

var shippedFiles = fstest.MapFS{"door.yaml": {Data: []byte(door("1s"))}}

func options(dir string) Options {
	return Options{
		Shipped: shippedFiles, Dir: dir, Log: logr.Discard(),
		Bindings: func(*fsm.Definition) (fsm.Bindings, error) {
			return fsm.Bindings{Actions: map[string]fsm.ActionSpec{"Knock": {}}}, nil
		},
	}
}

func load(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lookTwice is how often it takes until a change counts.
func (s *Store) lookTwice(t *testing.T) {
	s.look(t.Context())
	s.look(t.Context())
}

// files are the content of a directory: what is not there is removed, and an
// empty text makes a directory.
type files map[string]string

func (f files) write(t *testing.T, dir string) {
	t.Helper()
	old, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range old {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range f {
		path := filepath.Join(dir, name)
		if content == "" {
			err = os.Mkdir(path, 0o700)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// state is what a store answers: "poll message file" of each machine in force, what is
// refused of it, and the metrics that are not zero.
type state struct {
	InForce, Refused map[string]string
	Metrics          []string
}

var where = regexp.MustCompile(`revision sha256:[0-9a-f]+ goes on: `)

var revision = regexp.MustCompile(`revision sha256:[0-9a-f]+`)

func (s *Store) state(t *testing.T, dir string) state {
	t.Helper()
	got := state{InForce: map[string]string{}, Refused: map[string]string{}}
	for _, name := range s.Names() {
		h := s.Of(name)
		m := h.InForce()
		step := m.Definition().Spec.Phases[0].Steps[0]
		got.InForce[name] = strings.Join(strings.Fields(step.Poll+" "+step.Message+" "+strings.TrimPrefix(m.File(), dir+"/")), " ")
		if note := h.Refused(); note != "" {
			got.Refused[name] = strings.ReplaceAll(where.ReplaceAllString(note, ""), dir+"/", "")
		}
	}
	registry := prometheus.NewRegistry()
	s.Register(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "phasegate_machine_info" {
			continue // is InForce
		}
		for _, m := range f.GetMetric() {
			line := strings.TrimPrefix(f.GetName(), "phasegate_machine_")
			for _, l := range m.GetLabel() {
				line += " " + strings.TrimPrefix(l.GetValue(), dir+"/")
			}
			got.Metrics = append(got.Metrics, fmt.Sprintf("%s %v", line, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return got
}

func TestReload(t *testing.T) {
	cases := map[string]struct {
		why          string
		start, later files
		want         state
	}{
		"an edit": {
			why:   "the next reconcile runs it",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": door("3s")},
			want: state{InForce: map[string]string{"door": "3s mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}},
		},
		"the same again": {
			why:   "a file that was touched is no change",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": door("2s"), "README.md": "about"},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"}},
		},
		"a comment": {
			why:   "it is the same machine: nobody is woken, and nothing is counted",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": "# of the house\n" + strings.Replace(door("2s"), "poll: 2s", `poll: "2s"`, 1)},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"}},
		},
		"a message": {
			why:   "it is shown from now on, although the revision is the same",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": strings.Replace(door("2s"), "poll: 2s", `poll: 2s, message: "knocks"`, 1)},
			want: state{InForce: map[string]string{"door": "2s knocks mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}},
		},
		"a replacement of the compiled-in machine": {
			why:   "the directory may be filled later",
			later: files{"mine.yaml": door("3s")},
			want:  state{InForce: map[string]string{"door": "3s mine.yaml"}, Metrics: []string{"reloads_total door accepted 1"}},
		},
		"a file that ends in .yml": {
			why:   "nobody would hear that it is not in force",
			later: files{"mine.yml": door("3s")},
			want:  state{InForce: map[string]string{"door": "3s mine.yml"}, Metrics: []string{"reloads_total door accepted 1"}},
		},
		"a new machine": {
			why:   "it needs no restart, either",
			later: files{"gate.yaml": gate("2s")},
			want: state{InForce: map[string]string{"door": "1s door.yaml", "gate": "2s gate.yaml"},
				Metrics: []string{"reloads_total gate accepted 1"}},
		},
		"a new file name": {
			why:   "what runs is what the file says, wherever it is",
			start: files{"a.yaml": gate("2s")}, later: files{"b.yaml": gate("2s")},
			want: state{InForce: map[string]string{"door": "1s door.yaml", "gate": "2s b.yaml"},
				Metrics: []string{"reloads_total gate accepted 1"}},
		},
		"an edit that names nothing known": {
			why:   "the last good machine goes on, and the place is told",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": unbound(door("3s"))},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"},
				Refused: map[string]string{"door": `mine.yaml:10:16: PG005: action "Konck" is not known to this program: did you mean Knock? known actions: Knock`},
				Metrics: []string{"refused PG005 mine.yaml 1", "reloads_total door refused 1"}},
		},
		"an edit that is no YAML": {
			why:   "the file's name tells whose it is",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": "a: b: c"},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"},
				Refused: map[string]string{"door": "mine.yaml:1:1: PG000: yaml: mapping values are not allowed in this context: write one valid YAML document"},
				Metrics: []string{"refused PG000 mine.yaml 1", "reloads_total door refused 1"}},
		},
		"one good, one bad": {
			why:   "a bad file does not keep another machine from changing",
			start: files{"mine.yaml": door("2s"), "gate.yaml": gate("2s")},
			later: files{"mine.yaml": unbound(door("2s")), "gate.yaml": gate("3s")},
			want: state{InForce: map[string]string{"door": "2s mine.yaml", "gate": "3s gate.yaml"},
				Refused: map[string]string{"door": `mine.yaml:10:16: PG005: action "Konck" is not known to this program: did you mean Knock? known actions: Knock`},
				Metrics: []string{"refused PG005 mine.yaml 1", "reloads_total door refused 1", "reloads_total gate accepted 1"}},
		},
		"two of one name": {
			why:   "which of them runs must not depend on the alphabet",
			start: files{"mine.yaml": door("2s")},
			later: files{"mine.yaml": door("3s"), "mine-old.yaml": door("2s")},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"},
				Refused: map[string]string{"door": `mine.yaml:3:18: PG000: machine "door" is also in mine-old.yaml: keep one of them here; a spare copy must not end in .yaml or .yml`},
				Metrics: []string{"refused PG000 mine.yaml 1", "reloads_total door refused 1"}},
		},
		"vanished, compiled in": {
			why:   "the directory only lies over what is compiled in",
			start: files{"mine.yaml": door("2s")}, later: files{},
			want: state{InForce: map[string]string{"door": "1s door.yaml"}, Metrics: []string{"reloads_total door accepted 1"}},
		},
		"vanished, a machine of one's own": {
			why:   "its objects have finalizers that nobody else would remove",
			start: files{"gate.yaml": gate("2s")}, later: files{},
			want: state{InForce: map[string]string{"door": "1s door.yaml", "gate": "2s gate.yaml"},
				Metrics: []string{"reloads_total gate orphaned 1"}},
		},
		"vanished, while another file cannot be read": {
			why:   "it may be the same under a new name: the compiled-in machine must not jump in",
			start: files{"mine.yaml": door("2s")}, later: files{"new.yaml": "a: b: c"},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"},
				Metrics: []string{"refused PG000 new.yaml 1", "reloads_total  refused 1"}},
		},
		"a directory called yaml": {
			why:   "ignoring what cannot be read could ignore a machine",
			start: files{"mine.yaml": door("2s")}, later: files{"mine.yaml": ""},
			want: state{InForce: map[string]string{"door": "2s mine.yaml"},
				Refused: map[string]string{"door": "mine.yaml:1:1: PG000: it cannot be read: read mine.yaml: is a directory: make it readable or remove it"},
				Metrics: []string{"refused PG000 mine.yaml 1", "reloads_total door refused 1"}},
		},
		"an editor's leftovers": {
			why:   "they are no machines",
			later: files{".mine.yaml": "a: b: c", "mine.yaml~": "a: b: c", "..data": "", "notes.txt": "a: b: c"},
			want:  state{InForce: map[string]string{"door": "1s door.yaml"}},
		},
		"another kind under the name": {
			why:   "the controller is for the old kind, and its objects would have no machine",
			start: files{"gate.yaml": gate("2s")}, later: files{"gate.yaml": text("gate", "Fence", "2s")},
			want: state{InForce: map[string]string{"door": "1s door.yaml", "gate": "2s gate.yaml"},
				Refused: map[string]string{"gate": `gate.yaml:5:8: PG000: machine "gate" is for Gate example.org/v1, not for Fence example.org/v1: give the machine of another kind another name`},
				Metrics: []string{"refused PG000 gate.yaml 1", "reloads_total gate refused 1"}},
		},
		"another name for a kind": {
			why:   "two machines would pull at each object",
			later: files{"gate.yaml": text("gate", "Door", "2s")},
			want: state{InForce: map[string]string{"door": "1s door.yaml"},
				Metrics: []string{"refused PG000 gate.yaml 1", "reloads_total gate refused 1"}},
		},
		"two new machines of one kind": {
			why:   "nobody can tell which is meant",
			later: files{"a.yaml": text("a", "Gate", "2s"), "b.yaml": text("b", "Gate", "2s")},
			want: state{InForce: map[string]string{"door": "1s door.yaml"},
				Metrics: []string{"refused PG000 a.yaml 1", "refused PG000 b.yaml 1", "reloads_total a refused 1", "reloads_total b refused 1"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.start.write(t, dir)
			s := load(t, options(dir))
			c.later.write(t, dir)
			s.lookTwice(t)
			if c.want.Refused == nil {
				c.want.Refused = map[string]string{}
			}
			if diff := cmp.Diff(c.want, s.state(t, dir)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A file of another's machine that is refused keeps nobody from starting.
func TestRefusedAtStart(t *testing.T) {
	cases := map[string]struct {
		why   string
		files files
		want  map[string]string
	}{
		"another kind's":            {why: "it is nothing to door", files: files{"gate.yaml": unbound(gate("1s")), "mine.yaml": door("2s")}, want: map[string]string{"door": "2s mine.yaml"}},
		"a typo":                    {why: "the file still says whose it is", files: files{"x.yaml": strings.Replace(gate("1s"), "initial:", "first:", 1)}, want: map[string]string{"door": "1s door.yaml"}},
		"no YAML further on":        {why: "the lines before say whose it is", files: files{"x.yaml": gate("1s") + "a: b: c\n"}, want: map[string]string{"door": "1s door.yaml"}},
		"nobody's":                  {why: "door has a file of its own", files: files{"x.yaml": "a: b: c", "mine.yaml": door("2s")}, want: map[string]string{"door": "2s mine.yaml"}},
		"two of a name":             {why: "which of them runs must not depend on the alphabet", files: files{"a.yaml": gate("1s"), "b.yaml": gate("2s"), "mine.yaml": door("2s")}, want: map[string]string{"door": "2s mine.yaml"}},
		"a kind that has a machine": {why: "the object would have two drivers", files: files{"x.yaml": text("x", "Door", "1s")}, want: map[string]string{"door": "1s door.yaml"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.files.write(t, dir)
			s, err := Load(options(dir))
			if err != nil {
				t.Fatalf("it does not start: %s: %v", c.why, err)
			}
			got := s.state(t, dir)
			if d := cmp.Diff(c.want, got.InForce); d != "" || len(got.Metrics) == 0 {
				t.Errorf("%s: metrics %v (-want +got):\n%s", c.why, got.Metrics, d)
			}
		})
	}
	_, err := Load(options(filepath.Join(t.TempDir(), "nowhere")))
	if err == nil || !strings.Contains(err.Error(), "nowhere:1:1: PG000") {
		t.Errorf("a misspelt directory must not mean: as compiled in: %v", err)
	}
}

func TestWithoutDirectory(t *testing.T) {
	s := load(t, options(""))
	if diff := cmp.Diff(map[string]string{"door": "1s door.yaml"}, s.state(t, "").InForce); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	broken := options("")
	broken.Shipped = fs.FS(fstest.MapFS{"door.yaml": {Data: []byte("nonsense: true")}})
	if _, err := Load(broken); err == nil || !strings.Contains(err.Error(), "compiled-in") {
		t.Errorf("got %v, want an error about the compiled-in machines", err)
	}
}
