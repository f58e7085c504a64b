package operate_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	// block is a fenced block with its language.
	block = regexp.MustCompile("(?ms)^ *```([a-z]*)[^\n]*\n(.*?)^ *```$")
	// set is an argument that sets a value of the chart.
	set = regexp.MustCompile(`--set(?:-string|-json|-file)?[ =]'?"?([A-Za-z0-9_.\[\]-]+)=`)
	// dotted is a code span that could be the path of a value, with what it is set to.
	dotted = regexp.MustCompile("`([a-z][A-Za-z]*(?:\\.[A-Za-z<>*-]+)*)(?:=[^`]*)?`")
	flag   = regexp.MustCompile(`(?:^|[\s` + "`" + `(])--([a-z][a-z0-9-]+)`)
	path   = regexp.MustCompile(`^(?:charts|docs|phases|hack|resources|test|api|cmd)/[A-Za-z0-9_./-]+$`)
)

// theirs are the flags of helm and kubectl that pages speak of.
var theirs = []string{"force-conflicts", "quota-backend-bytes", "reset-then-reuse-values", "reuse-values", "take-ownership", "validate"}

// here are the pages of this directory, by name.
func here(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[file] = read(t, file)
	}
	return texts
}

// A value that is misspelt in a page would be set by nobody's chart.
func TestValuesExist(t *testing.T) {
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, root+"/charts/phasegate/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	count := 0
	for name, page := range here(t) {
		for _, path := range append(spoken(values, page), given(t, values, page)...) {
			count++
			if !has(values, path) {
				t.Errorf("%s: values.yaml has no %s", name, strings.Join(path, "."))
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d values were found in the pages: are the patterns still right?", count)
	}
}

// spoken are the values that a page sets on a command line, or names in a code span.
func spoken(values map[string]any, page string) (paths [][]string) {
	for _, m := range set.FindAllStringSubmatch(page, -1) {
		paths = append(paths, split(m[1]))
	}
	for _, m := range dotted.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		if path := split(m[1]); len(path) > 1 && values[path[0]] != nil && filepath.Ext(m[1]) != ".yaml" {
			paths = append(paths, path)
		}
	}
	return paths
}

// given are the values in the page's examples of a values file, whose first line is
// a comment with its name.
func given(t *testing.T, values map[string]any, page string) (paths [][]string) {
	t.Helper()
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		if m[1] != "yaml" || !strings.HasPrefix(m[2], "# values") {
			continue
		}
		example := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(m[2]), &example); err != nil {
			t.Fatalf("%v in\n%s", err, m[2])
		}
		paths = append(paths, leaves(values, example, nil)...)
	}
	return paths
}

func split(path string) []string { return strings.Split(strings.TrimRight(path, "."), ".") }

// has tells whether a path leads to a value; below one that is empty by default,
// everything may be. A part such as <controller> or * stands for any.
func has(values any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch values := values.(type) {
	case map[string]any:
		if len(values) == 0 {
			return true
		}
		if wild := path[0] == "*" || strings.HasPrefix(path[0], "<"); wild {
			for _, v := range values {
				if has(v, path[1:]) {
					return true
				}
			}
			return false
		}
		v, ok := values[path[0]]
		return ok && has(v, path[1:])
	case []any:
		return true
	}
	return false
}

// leaves are the paths of what an example gives, down to where the chart's defaults end.
func leaves(values any, given any, at []string) (paths [][]string) {
	fields, ok := given.(map[string]any)
	if known, is := values.(map[string]any); !ok || is && len(known) == 0 {
		return [][]string{at}
	}
	for name, v := range fields {
		var below any
		if known, is := values.(map[string]any); is {
			below = known[name]
		}
		paths = append(paths, leaves(below, v, append(slices.Clone(at), name))...)
	}
	return paths
}

func TestHas(t *testing.T) {
	values := map[string]any{"a": map[string]any{"b": 1.0, "c": map[string]any{}, "d": []any{}}}
	cases := map[string]struct {
		why  string
		want bool
	}{
		"a.b":     {why: "a leaf", want: true},
		"a.b.c":   {why: "nothing is below a leaf", want: false},
		"a.c.x.y": {why: "an empty map takes anything", want: true},
		"a.d":     {why: "a list", want: true},
		"a.<x>":   {why: "any of them", want: true},
		"<x>.e":   {why: "none has it", want: false},
		"e":       {why: "misspelt", want: false},
	}
	for path, c := range cases {
		if got := has(values, split(path)); got != c.want {
			t.Errorf("%s: got %t, want %t: %s", path, got, c.want, c.why)
		}
	}
}

// Flags belong to the program of their line; in prose, to any of ours.
func TestFlagsAndCommandsExist(t *testing.T) {
	p := programs{manager: flags(t, "cmd/manager")}
	p.plugin, p.verbs = plugin(t)
	for _, name := range pages(t) {
		page := read(t, name)
		for _, line := range commands(page) {
			for _, problem := range p.problems(line) {
				t.Errorf("%s: %s: %s", name, problem, line)
			}
		}
		for _, span := range spans.FindAllString(fenced.ReplaceAllString(page, ""), -1) {
			m := flag.FindStringSubmatch(span)
			if strings.HasPrefix(span, "`--") && m != nil && !p.manager[m[1]] && !p.plugin[m[1]] && !slices.Contains(theirs, m[1]) {
				t.Errorf("%s: no program of ours has %s", name, span)
			}
		}
	}
}

// programs are the flags of ours, and the commands of the plugin.
type programs struct{ manager, plugin, verbs map[string]bool }

// problems are what is wrong with a command line: of our programs the flags and
// commands, of all the files of this repository.
func (p programs) problems(line string) (problems []string) {
	var known map[string]bool // nil: kubectl's, helm's and make's are theirs
	words := strings.Fields(line)
	if _, rest, ours := strings.Cut(line, "kubectl phasegate "); ours {
		known = p.plugin
		if verb := strings.Fields(rest)[0]; !p.verbs[verb] {
			problems = append(problems, "kubectl phasegate has no command "+verb)
		}
	} else if strings.HasSuffix(words[0], "manager") {
		known = p.manager
	}
	for _, m := range flag.FindAllStringSubmatch(line, -1) {
		if known != nil && !known[m[1]] {
			problems = append(problems, "--"+m[1]+" is no flag of the program")
		}
	}
	for _, word := range words {
		if word = strings.Trim(word, `'"`); path.MatchString(word) {
			if _, err := os.Stat(filepath.Join(root, word)); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	return problems
}

// Each kind of mistake is found, and a line without one is let through.
func TestProblems(t *testing.T) {
	p := programs{manager: map[string]bool{"good": true}, plugin: map[string]bool{"wait": true}, verbs: map[string]bool{"retry": true}}
	cases := map[string]struct {
		why  string
		want int
	}{
		"bin/manager --good":               {why: "a flag that there is", want: 0},
		"bin/manager --godo":               {why: "a misspelt flag", want: 1},
		"kubectl phasegate retry x --wait": {why: "a flag of the plugin", want: 0},
		"kubectl phasegate rerty --wiat":   {why: "the command and its flag", want: 2},
		"helm upgrade --anything":          {why: "helm's flags are helm's", want: 0},
		"helm lint charts/nosuch":          {why: "a file that there is not", want: 1},
	}
	for line, c := range cases {
		if got := p.problems(line); len(got) != c.want {
			t.Errorf("%s: got %v, want %d: %s", line, got, c.want, c.why)
		}
	}
}

// commands are the lines of a page that a reader types: those of shell blocks, those
// after a prompt, and code spans that begin with a program.
func commands(page string) (lines []string) {
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		text := strings.ReplaceAll(m[2], "\\\n", " ")
		for line := range strings.Lines(text) {
			typed, prompted := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if m[1] != "sh" && (m[1] != "console" || !prompted) {
				continue
			}
			if typed, _, _ = strings.Cut(typed, " # "); typed != "" && typed[0] != '#' {
				lines = append(lines, typed)
			}
		}
	}
	for _, span := range spans.FindAllString(fenced.ReplaceAllString(page, ""), -1) {
		if span = strings.Trim(span, "`"); strings.HasPrefix(span, "kubectl phasegate ") || strings.HasPrefix(span, "manager ") {
			lines = append(lines, span)
		}
	}
	return lines
}

// flags are those that a program declares, and those that cobra gives it.
func flags(t *testing.T, dir string) map[string]bool {
	found := map[string]bool{"help": true, "version": true}
	declares := regexp.MustCompile(`Var(P)?$`)
	walkGo(t, []string{dir}, func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 2 && declares.MatchString(called(call)) {
			for _, name := range texts(call.Args[1]) {
				found[name] = true
			}
		}
	})
	if len(found) < 10 {
		t.Fatalf("only %d flags of %s were found: is the collector still right?", len(found), dir)
	}
	return found
}

// plugin are the flags and the commands of kubectl phasegate: those of the page that
// its own help is written to, which a test there keeps true.
func plugin(t *testing.T) (flags, verbs map[string]bool) {
	t.Helper()
	page := read(t, root+"/docs/reference/cli.md")
	flags, verbs = map[string]bool{}, map[string]bool{"help": true}
	for _, m := range regexp.MustCompile(`--([a-z][a-z0-9-]+)`).FindAllStringSubmatch(page, -1) {
		flags[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^## kubectl phasegate ([a-z-]+)$`).FindAllStringSubmatch(page, -1) {
		verbs[m[1]] = true
	}
	if len(verbs) < 10 || len(flags) < 20 {
		t.Fatalf("only %d commands and %d flags were found: is the page still written like that?", len(verbs), len(flags))
	}
	return flags, verbs
}
