package harness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// noProcessMentions looks into the command line and environment of every process.
func noProcessMentions(dir string) error {
	for _, file := range []string{"cmdline", "environ"} {
		paths, err := filepath.Glob("/proc/[0-9]*/" + file)
		if err != nil {
			return err
		}
		for _, path := range paths {
			// Unreadable are those that have ended meanwhile and those of others.
			text, _ := os.ReadFile(path)
			if bytes.Contains(text, []byte(dir)) {
				// Not the text: an environment may hold what is not for a log.
				return fmt.Errorf("%s mentions %s", path, dir)
			}
		}
	}
	return nil
}

func shell(t *testing.T, script string) *harness.Process {
	t.Helper()
	return harness.ProcessForTest(t, harness.Program{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"WORD=hello"}, LogDir: t.TempDir(),
	})
}

// says waits until the program has written a line, so that it is known to be
// past what precedes it.
func says(t *testing.T, p *harness.Process, line string) {
	t.Helper()
	harness.Eventually(t, "the program to say "+line, func() error {
		if got := p.Tail(1); got != line {
			return fmt.Errorf("its last line is %q", got)
		}
		return p.Alive()
	})
}

func TestProcessStops(t *testing.T) {
	cases := map[string]struct {
		why    string
		script string
		grace  time.Duration
		want   string
	}{
		"politely":  {"a manager that ends with code 0 did a clean shutdown", `trap 'exit 0' TERM; echo $WORD; while :; do sleep 0.01; done`, 10 * time.Second, "<nil>"},
		"with code": {"a program that fails at its end must be noticed", `trap 'exit 3' TERM; echo $WORD; while :; do sleep 0.01; done`, 10 * time.Second, "exit status 3"},
		"by force":  {"a program that does not end must not hang the tests", `trap '' TERM; echo $WORD; while :; do sleep 0.01; done`, 50 * time.Millisecond, "stop shell: still running 50ms after SIGTERM: killed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := shell(t, tc.script)
			says(t, p, "hello")
			if got := fmt.Sprint(p.Stop(tc.grace)); got != tc.want {
				t.Errorf("%s: stop returned %q, want %q", tc.why, got, tc.want)
			}
			if p.Alive() == nil {
				t.Error("it is still alive")
			}
		})
	}
}

func TestKillReachesDescendants(t *testing.T) {
	dir := t.TempDir()
	p := harness.ProcessForTest(t, harness.Program{
		Name: "family", Path: "/bin/sh", Args: []string{"-c", "sleep 600 & echo ready; wait"}, LogDir: dir,
		Env: []string{"WHERE=" + dir},
	})
	says(t, p, "ready")
	if err := noProcessMentions(dir); err == nil {
		t.Fatal("the family is not found while it lives")
	}
	p.Kill()
	p.Kill()
	harness.Eventually(t, "the descendants to end", func() error { return noProcessMentions(dir) })
}

func TestEndedProcessIsToldAtOnceWithItsLog(t *testing.T) {
	p := shell(t, "echo one; echo two; exit 7")
	<-p.Ended()
	err := harness.Await(t.Context(), "a wonder", time.Hour, func(context.Context) error { return p.Alive() })
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"waited for a wonder", "shell has ended (exit status 7)", "one\ntwo"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q:\n%v", part, err)
		}
	}
}

func TestStartOfAMissingProgramFails(t *testing.T) {
	_, err := harness.StartProcess(harness.Program{Name: "none", Path: "/nonexistent", LogDir: t.TempDir()})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want that the program does not exist", err)
	}
}

// One that has ended has not been killed, however little time it is given.
func TestStopAfterTheEndTellsHowItEnded(t *testing.T) {
	p := shell(t, "exit 3")
	<-p.Ended()
	for range 50 {
		if err := p.Stop(0); err == nil || err.Error() != "exit status 3" {
			t.Fatalf("got %v, want exit status 3", err)
		}
	}
}
