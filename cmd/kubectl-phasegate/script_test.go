package main

import (
	"errors"
	"flag"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-phasegate": main})
}

// Each file is a session without a cluster, as it is seen without colours. go test -update
// writes what is printed now.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: flag.Lookup("update").Value.String() == "true",
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", "nowhere")
			env.Setenv("COLUMNS", "100")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits is `exits CODE PROGRAM ARGS`: exec, and the exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// Whoever knows one command knows all: what each does, how it ends, an example.
func TestEveryCommandExplainsItself(t *testing.T) {
	root := command(streams{})
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if slices.Contains([]string{"help", "completion"}, cmd.Name()) {
			continue // cobra's own
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			if !strings.Contains(cmd.Long, "Exit code") {
				t.Error("its help does not say which exit codes it can give")
			}
			if !strings.Contains(cmd.Example, "kubectl phasegate "+cmd.Name()) {
				t.Error("its help has no example")
			}
			if strings.Contains(cmd.Use, "[NAME]") && cmd.ValidArgsFunction == nil {
				t.Error("it does not complete NAME")
			}
			for line := range strings.Lines(cmd.Long) {
				if len([]rune(strings.TrimSuffix(line, "\n"))) > 95 { // a narrow terminal shows no more
					t.Errorf("a line of its help has more than 95 signs: %s", line)
				}
			}
		})
	}
}
