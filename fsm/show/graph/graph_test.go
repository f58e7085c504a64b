package graph_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/show/graph"
)

var update = flag.Bool("update", false, "write the pictures under testdata anew")

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func bind(t *testing.T, path string, b program.Bindings) *fsm.Machine {
	t.Helper()
	def, diags := program.Load(path, read(t, path))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	m, diags := fsm.Bind(def, b)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

func odd(t *testing.T) *fsm.Machine {
	t.Helper()
	return bind(t, "testdata/odd.yaml", program.Bindings{})
}

func mcpserver(t *testing.T) *fsm.Machine {
	t.Helper()
	path := "../../../docs/machines/mcpserver.bindings.yaml"
	b, diags := program.LoadBindings(path, read(t, path))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return bind(t, "../../../phases/mcpserver.yaml", b)
}

// waiting is an object that found an exit closed, and one that an older file said.
func waiting(m *fsm.Machine) graph.Marks {
	since := metav1.NewMicroTime(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	return graph.MarkObject(m, "shop/odd", &v1alpha1.MachineStatus{
		Phase: "aVeryLongNameOfAPhaseThatLeavesNoRoomForAnythingElse", EnteredAt: &since, Held: v1alpha1.Held("lock", "key"),
		Blocked: []v1alpha1.Blocked{
			{To: "x--", Guard: "self.spec.go", Value: "self.spec.go = false"},
			{To: "x--", Guard: "an older file said this", Value: "nothing"},
			{Step: "Look", Guard: "result.done", Value: "result.done = false"},
		},
	})
}

// TestPictures keeps whole pictures of a machine whose names and texts look like
// the syntax of what is drawn.
func TestPictures(t *testing.T) {
	m := odd(t)
	counts := graph.MarkCounts(map[string]int{"a-b": 2, "Bygone": 1})
	cases := map[string]struct {
		why  string
		got  string
		file string
	}{
		"Mermaid":      {why: "every edge", got: graph.Mermaid(m, graph.Options{}), file: "odd.mmd"},
		"Dot":          {why: "every edge", got: graph.Dot(m, graph.Options{}), file: "odd.dot"},
		"ASCII":        {why: "every edge, and names that are wider than their column", got: graph.ASCII(m, graph.Options{}), file: "odd.txt"},
		"ASCIIMarked":  {why: "where an object is, and which exit is closed by what", got: graph.ASCII(m, graph.Options{Marks: waiting(m)}), file: "marked.txt"},
		"SVG":          {why: "a place for each phase, and no text that is taken for markup", got: graph.SVG(m, graph.Options{Marks: waiting(m)}), file: "odd.svg"},
		"DotCounted":   {why: "how many objects are where, one in a phase that is gone", got: graph.Dot(m, graph.Options{NoDeletion: true, NoErrors: true, Marks: counts}), file: "counted.dot"},
		"MermaidShort": {why: "without deletions and errors", got: graph.Mermaid(m, graph.Options{NoDeletion: true, NoErrors: true, Marks: counts}), file: "short.mmd"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", tc.file)
			if *update {
				if err := os.WriteFile(path, []byte(tc.got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, path)), tc.got); diff != "" {
				t.Errorf("%s: %s differs (-want +got; go test -update writes it anew):\n%s", tc.why, path, diff)
			}
		})
	}
}

// text is what may stand between Mermaid's quotes: our own tags, entities, and
// nothing that either would be made of.
const text = `"(?:[^"<>#&%\x60\\\n]|</?b>|<br/>|#(?:quot|lt|gt|amp|[0-9]+);)*"`

var (
	mermaidNode  = regexp.MustCompile(`^  (phase_[A-Za-z0-9_]+)(?:\[` + text + `\]|\[\[` + text + `\]\]|\(\[` + text + `\]\)|\(\(` + text + `\)\)|\{\{` + text + `\}\}):::([a-z]+)$`)
	mermaidEdge  = regexp.MustCompile(`^  (phase_[A-Za-z0-9_]+) (?:-->|-\.->)\|` + text + `\| (phase_[A-Za-z0-9_]+)$`)
	mermaidClass = regexp.MustCompile(`^  classDef ([a-z]+) [a-z-]+:[#a-z0-9 ]+(?:,[a-z-]+:[#a-z0-9 ]+)*$`)
)

// TestMermaidIsValid holds every line against the few forms that we write; that
// Mermaid's own parser takes these forms was tried by hand.
func TestMermaidIsValid(t *testing.T) {
	server, strange := mcpserver(t), odd(t)
	for name, picture := range map[string]string{
		"Server":  graph.Mermaid(server, graph.Options{Marks: graph.MarkCounts(map[string]int{"Ready": 7})}),
		"Strange": graph.Mermaid(strange, graph.Options{Marks: graph.MarkCounts(map[string]int{"x--": 1, "gone-": 3})}),
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
			if !strings.HasPrefix(lines[0], "%% ") || lines[1] != "flowchart TD" {
				t.Errorf("begins with %q", lines[:2])
			}
			known, used := map[string]bool{}, map[string]bool{}
			for _, line := range lines[2:] {
				if part := mermaidNode.FindStringSubmatch(line); part != nil {
					if known[part[1]] {
						t.Errorf("%s is drawn twice", part[1])
					}
					known[part[1]], used["class "+part[2]] = true, true
				} else if part := mermaidEdge.FindStringSubmatch(line); part != nil {
					used[part[1]], used[part[2]] = true, true
				} else if part := mermaidClass.FindStringSubmatch(line); part != nil {
					known["class "+part[1]] = true
				} else {
					t.Errorf("not Mermaid: %s", line)
				}
			}
			for name := range used {
				if !known[name] {
					t.Errorf("%s is used and not declared", name)
				}
			}
		})
	}
}

const quoted = `"(?:[^"\\\n]|\\["\\n])*"`

var dotLine = regexp.MustCompile(`^  (?:` + quoted + `(?: -> ` + quoted + `)? \[.*\]|label=` + quoted + `|labelloc=t|(?:node|edge) \[.*\])$`)
var dotAttributes = regexp.MustCompile(`\[(?:[a-z]+=(?:` + quoted + `|[a-z0-9]+)(?:, )?)+\]$`)

func TestDotIsValid(t *testing.T) {
	picture := graph.Dot(odd(t), graph.Options{})
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if lines[0] != `digraph "odd" {` || lines[len(lines)-1] != "}" {
		t.Errorf("begins with %q, ends with %q", lines[0], lines[len(lines)-1])
	}
	for _, line := range lines[1 : len(lines)-1] {
		if !dotLine.MatchString(line) || strings.HasSuffix(line, "]") && !dotAttributes.MatchString(line) {
			t.Errorf("not dot: %s", line)
		}
	}
}

// A page shows the picture under a policy that allows neither styles nor scripts
// in it, and it must be well-formed whatever a machine file says.
func TestSVGIsPlain(t *testing.T) {
	for name, picture := range map[string]string{
		"Server":  graph.SVG(mcpserver(t), graph.Options{}),
		"Strange": graph.SVG(odd(t), graph.Options{Marks: graph.MarkCounts(map[string]int{"<script>": 1})}),
	} {
		t.Run(name, func(t *testing.T) {
			places := map[string]bool{}
			for d := xml.NewDecoder(strings.NewReader(picture)); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%v in\n%s", err, picture)
				}
				start, ok := token.(xml.StartElement)
				if !ok {
					continue
				}
				if !slices.Contains([]string{"svg", "g", "title", "rect", "text", "path"}, start.Name.Local) {
					t.Errorf("an element %s", start.Name.Local)
				}
				at := map[string]string{}
				for _, a := range start.Attr {
					at[a.Name.Local] = a.Value
				}
				for _, bad := range []string{"style", "href", "onload", "id"} {
					if at[bad] != "" {
						t.Errorf("an attribute %s", bad)
					}
				}
				if where := at["x"] + "," + at["y"]; start.Name.Local == "rect" {
					if places[where] {
						t.Errorf("two phases at %s", where)
					}
					places[where] = true
				}
			}
		})
	}
}

func TestASCIIFits(t *testing.T) {
	server, strange := mcpserver(t), odd(t)
	for _, picture := range []string{graph.ASCII(server, graph.Options{}), graph.ASCII(strange, graph.Options{Marks: waiting(strange)})} {
		for line := range strings.Lines(picture) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

func TestEveryEdgeIsDrawn(t *testing.T) {
	m := mcpserver(t)
	whole := graph.ASCII(m, graph.Options{})
	// Labels are broken over lines, whose left margin is a rail.
	flat := strings.Join(strings.Fields(strings.ReplaceAll(whole, "\n  |  ", "\n")), " ")
	for _, e := range m.Edges() {
		if !strings.Contains(flat, strings.Join(strings.Fields(e.Words()), " ")) {
			t.Errorf("%s is not drawn: %s", e.Event, e.Words())
		}
	}
	without := graph.ASCII(m, graph.Options{NoDeletion: true, NoErrors: true})
	for _, gone := range []string{"deletion\n", "on a Terminal error"} {
		if !strings.Contains(whole, gone) || strings.Contains(without, gone) {
			t.Errorf("%q must be in the whole picture only", gone)
		}
	}
}
