// Package docs keeps FAULTS.md true: each fault has its line, and each test that a line
// names exists, also on the pages about security and unknown input.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	defects     = 41 // P1 to P41
	hazards     = 14 // R1 to R14
	experiments = 22 // E1 to E22
	others      = 20 // O1 to O20
)

var (
	lineOfFault = regexp.MustCompile(`(?m)^\| ((?:[PREOA]\d+(?:, )?)+) \| .+ \| (.+) \|$`)
	namedTest   = regexp.MustCompile("`([a-z0-9_/]+)\\.((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)(?:/([^`]+))?`")
	// honest is what a line says that names no test.
	honest = regexp.MustCompile(`(?i)^(as [PR]\d+|does not apply|not proved|we have it, too|this page)`)
)

func TestEachFaultHasItsLine(t *testing.T) {
	answers := map[string]string{}
	for _, m := range lineOfFault.FindAllStringSubmatch(page(t), -1) {
		for id := range strings.SplitSeq(m[1], ", ") {
			if answers[id] != "" {
				t.Errorf("%s has two lines", id)
			}
			answers[id] = m[2]
		}
	}
	filed := 0 // A1 and so on: as many as were found
	for id, answer := range answers {
		if strings.HasPrefix(id, "A") {
			filed++
			assertAnswer(t, id, answer)
		}
	}
	for prefix, n := range map[string]int{"P": defects, "R": hazards, "E": experiments, "O": others} {
		for i := range n {
			id := fmt.Sprintf("%s%d", prefix, i+1)
			assertAnswer(t, id, answers[id])
		}
	}
	if want := defects + hazards + experiments + others + filed; len(answers) != want {
		t.Errorf("%d faults and experiments, want %d", len(answers), want)
	}
}

func assertAnswer(t *testing.T, id, answer string) {
	t.Helper()
	if !namedTest.MatchString(answer) && !honest.MatchString(answer) {
		t.Errorf("%s: %q names no test, and does not say why", id, answer)
	}
}

func TestTheTestsOfFaultsExist(t *testing.T) {
	named := namedTest.FindAllStringSubmatch(page(t), -1)
	if len(named) < defects {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, other := range []string{"operate/security.md", "reference/unknown-input.md"} {
		named = append(named, namedTest.FindAllStringSubmatch(read(t, other), -1)...)
	}
	for _, m := range named {
		dir, name, which := m[1], m[2], m[3]
		source := testsOf(t, dir)
		if !strings.Contains(source, "func "+name+"(") {
			t.Errorf("%s: there is no such test", m[0])
		} else if which != "" && !strings.Contains(source, `"`+which+`"`) {
			t.Errorf("%s: the test has no such case", m[0])
		}
	}
}

func page(t *testing.T) string { return read(t, "../FAULTS.md") }

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// testsOf is the source of all tests in a directory of the repository.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
