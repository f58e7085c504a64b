package fsm_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// TestTranscripts plays every file of testdata. A block is comments (#), one
// command (>) with its text (|), and what happens, up to an empty line:
//
//	> machine [NAME]             a new world; the machine is in the text, or the shipped one
//	> do ACTION JSON             from now on its outputs, the others are zero
//	> do ACTION wait TEXT | error CLASS TEXT | terminal REASON TEXT
//	> once ACTION …              the same, for the next call only
//	> do ACTION takes DURATION … the same, after a while
//	> guard NAME open|closed|error TEXT
//	> set PATH JSON              a field of the object, such as spec.type
//	> phase NAME                 overwrite the stored phase
//	> delete | advance DURATION
//	> rival                      somebody else writes before the next write
//	> steal | keep               somebody takes all finalizers | adds one of their own
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
			fsmtest.Golden(t, file, play(t, string(readFile(t, file))))
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
	t     *testing.T
	w     *world
	trace strings.Builder
}

// verbs are the commands of a script, each with its first word and the rest.
var verbs = map[string]func(s *scene, name, rest string){
	"do":      func(s *scene, name, rest string) { s.w.Give(name, s.answer(rest)) },
	"once":    func(s *scene, name, rest string) { s.w.Once(name, s.answer(rest)) },
	"guard":   func(s *scene, name, rest string) { s.guard(name, rest) },
	"set":     func(s *scene, name, rest string) { s.set(name, rest) },
	"phase":   func(s *scene, name, _ string) { s.w.Stored.Phase = name },
	"delete":  func(s *scene, _, _ string) { s.w.Delete() },
	"steal":   func(s *scene, _, _ string) { s.w.Finalizers = nil },
	"keep":    func(s *scene, _, _ string) { s.w.Finalizers = append(s.w.Finalizers, "other.dev/keep") },
	"rival":   func(s *scene, _, _ string) { s.w.ConflictNext = true },
	"advance": func(s *scene, name, _ string) { s.w.Tick(s.duration(name)) },
	"pass":    func(s *scene, _, _ string) { _, _ = s.w.Reconcile() }, // what happened is in the trace
	"settle":  func(s *scene, _, _ string) { s.w.settle() },
	"status":  func(s *scene, _, _ string) { s.trace.WriteString(s.w.Describe() + "\n") },
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
	s.trace.Reset()
	do(s, name, rest)
	return s.trace.String()
}

func (s *scene) machine(name, text string) {
	s.w = nil
	if name != "" {
		s.w = shipped(s.t)
	} else {
		s.w = newWorld(s.t, "test.yaml", []byte(header+text+"\n"), testBindings)
	}
	s.w.Tell = func(e simulate.Event) {
		if e.Kind == simulate.EventDid {
			s.trace.WriteString(e.Text + "\n")
		}
	}
}

func (s *scene) guard(name, text string) {
	how, seen, _ := strings.Cut(text, " ")
	g := simulate.GuardAnswer{Open: how == "open", Seen: seen}
	if how == "error" {
		g.Err = errors.New(seen)
	}
	s.w.GiveGuard(name, g)
}

func (s *scene) answer(text string) simulate.Answer {
	how, rest, _ := strings.Cut(text, " ")
	word, message, _ := strings.Cut(rest, " ")
	switch how {
	case "wait":
		return failing(fsm.Wait("%s", rest), "")
	case "error":
		return failing(errors.New(message), program.Class(word))
	case "terminal":
		return failing(fsm.Terminal(word, "%s", message), program.ClassTerminal)
	case "takes":
		a := s.answer(message)
		a.Takes = s.duration(word)
		return a
	}
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("outputs %s: %v", text, err)
	}
	return answer(out)
}

func (s *scene) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *scene) set(path, text string) {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatal(err)
	}
	s.w.set(path, v)
}
