package fsm

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the transcripts under testdata with what happens now")

// TestTranscripts plays every file of testdata. A block is comments (#), one
// command (>) with its text (|), and what happens, up to an empty line:
//
//	> machine [NAME]             a new world; the machine is in the text, or the shipped one
//	> do ACTION JSON             from now on its outputs
//	> do ACTION wait TEXT | error CLASS TEXT | terminal REASON TEXT
//	> once ACTION …              the same, for the next call only
//	> takes ACTION DURATION      how long its next call lasts
//	> guard NAME open|closed|error TEXT
//	> set PATH JSON              a field of the object, such as spec.type
//	> phase NAME                 overwrite the stored phase
//	> delete | advance DURATION
//	> rival                      somebody else writes before the next write
//	> steal | keep               somebody takes our finalizer | has one of their own
//	> pass | settle              one reconcile, or all until time must go on
//	> status                     what is stored and shown
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want := string(readFile(t, file))
			got := play(t, want)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("%s (-want +got); go test ./fsm -run Transcripts -update rewrites it:\n%s", file, d)
			}
		})
	}
}

// play answers the script with the results of this run in it.
func play(t *testing.T, script string) string {
	s := &scene{t: t}
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		var input, text []string
		var command string
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "> "):
				command = strings.TrimPrefix(line, "> ")
			case strings.HasPrefix(line, "| "):
				text = append(text, strings.TrimPrefix(line, "| "))
			case !strings.HasPrefix(line, "#"):
				continue // the result of an earlier run
			}
			input = append(input, line)
		}
		result := s.run(command, strings.Join(text, "\n"))
		out = append(out, strings.TrimSuffix(strings.Join(input, "\n")+"\n"+result, "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

type scene struct {
	t *testing.T
	w *world
}

// verbs are the commands of a script, each with its first word and the rest.
var verbs = map[string]func(s *scene, name, rest string){
	"do":      func(s *scene, name, rest string) { s.w.actions[name] = []answer{s.answer(name, rest)} },
	"once":    func(s *scene, name, rest string) { s.before(name, s.answer(name, rest)) },
	"takes":   func(s *scene, name, rest string) { s.takes(name, s.duration(rest)) },
	"guard":   func(s *scene, name, rest string) { s.guard(name, rest) },
	"set":     func(s *scene, name, rest string) { s.set(strings.Split(name, "."), rest) },
	"phase":   func(s *scene, name, _ string) { s.w.stored.Phase = name },
	"delete":  func(s *scene, _, _ string) { s.w.delete() },
	"steal":   func(s *scene, _, _ string) { s.w.finalizer = false; s.w.version++ },
	"keep":    func(s *scene, _, _ string) { s.w.gone = false },
	"rival":   func(s *scene, _, _ string) { s.w.rival = true },
	"advance": func(s *scene, name, _ string) { s.w.now = s.w.now.Add(s.duration(name)) },
	"pass":    func(s *scene, _, _ string) { _, _ = s.w.pass() }, // what happened is in the trace
	"settle":  func(s *scene, _, _ string) { s.w.settle() },
	"status":  func(s *scene, _, _ string) { s.w.say("%s", s.status()) },
}

func (s *scene) run(command, text string) string {
	verb, rest, _ := strings.Cut(command, " ")
	name, rest, _ := strings.Cut(rest, " ")
	switch verb {
	case "": // a block of comments
		return ""
	case "machine":
		s.machine(name, text)
		return ""
	}
	do, known := verbs[verb]
	if !known {
		s.t.Fatalf("unknown command %q", command)
	}
	s.w.trace.Reset()
	do(s, name, rest)
	return s.w.trace.String()
}

// next is what the action would answer now.
func (s *scene) next(action string) answer {
	if old := s.w.actions[action]; len(old) > 0 {
		return old[0]
	}
	return answer{Outcome: Outcome{Outputs: sampleOutputs(s.w.bindings.Actions[action])}}
}

func (s *scene) before(action string, a answer) {
	old := s.w.actions[action]
	if len(old) == 0 {
		old = []answer{s.next(action)}
	}
	s.w.actions[action] = append([]answer{a}, old...)
}

func (s *scene) takes(action string, d time.Duration) {
	a := s.next(action)
	a.takes = d
	s.before(action, a)
}

func (s *scene) guard(name, text string) {
	how, seen, _ := strings.Cut(text, " ")
	g := guardAnswer{open: how == "open", seen: seen}
	if how == "error" {
		g.err = errors.New(seen)
	}
	s.w.guards[name] = g
}

func (s *scene) machine(name, text string) {
	if name != "" {
		s.w = shipped(s.t)
		return
	}
	s.w = newWorld(s.t, "test.yaml", []byte(header+text+"\n"), testBindings)
}

func (s *scene) answer(action, text string) answer {
	how, rest, _ := strings.Cut(text, " ")
	word, message, _ := strings.Cut(rest, " ")
	switch how {
	case "wait":
		return answer{Outcome: Outcome{Err: Wait("%s", rest)}}
	case "error":
		return answer{Outcome: Outcome{Err: errors.New(message), Class: Class(word)}}
	case "terminal":
		return answer{Outcome: Outcome{Err: Terminal(word, "%s", message), Class: ClassTerminal}}
	}
	out := sampleOutputs(s.w.bindings.Actions[action])
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("outputs of %s: %v", action, err)
	}
	return answer{Outcome: Outcome{Outputs: out}}
}

func (s *scene) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *scene) set(path []string, text string) {
	m := s.w.self
	for _, key := range path[:len(path)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatal(err)
	}
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		v = int64(f) // as the API machinery decodes it
	}
	m[path[len(path)-1]] = v
}

// status tells what a person sees, with times relative to now.
func (s *scene) status() string {
	w, b := s.w, &strings.Builder{}
	shown, st := w.shown, w.stored
	fmt.Fprintf(b, "%s: %s\n", shown.Phase, shown.Message)
	for _, c := range shown.Conditions {
		fmt.Fprintf(b, "  %s=%s %s\n", c.Type, c.Status, c.Reason)
	}
	if st.Step != "" {
		fmt.Fprintf(b, "  step %s, cursor %d, attempts %d\n", st.Step, st.Cursor, st.Attempts)
	}
	if st.Deadline != nil {
		fmt.Fprintf(b, "  deadline in %s\n", st.Deadline.Sub(w.now).Round(time.Second))
	}
	if st.NextCheck != nil {
		fmt.Fprintf(b, "  next check in %s\n", st.NextCheck.Sub(w.now).Round(time.Second))
	}
	fmt.Fprintf(b, "  held %v, in place %v\n", st.Held, w.held())
	for _, x := range st.Blocked {
		fmt.Fprintf(b, "  blocked %s: %s: %s\n", firstOf(x.To, x.Step), x.Because, x.Got)
	}
	for _, q := range st.Requests {
		fmt.Fprintf(b, "  request %s %q\n", q.Name, q.Token)
	}
	fmt.Fprintf(b, "  on delete: %s", st.OnDelete)
	return b.String()
}
