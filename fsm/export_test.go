package fsm

import (
	"os"
	"testing"
)

// What the internal tests share with those that drive machines in fsm/simulate, which
// imports this package.
const (
	Header   = header
	OnePhase = onePhase
	Rest     = rest
	ToDone   = toDone
)

// ExampleFiles build machine files around some lines.
var (
	Spec, Phases, One = spec, phases, one
	WithSpec          = withSpec
	WithBindings      = withBindings
	TestBindings      = testBindings
)

// ReadFile fails the test when there is no such file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
